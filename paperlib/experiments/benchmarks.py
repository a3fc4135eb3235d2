"""The evaluation tasks of the profiles ``laptop`` and ``paper``: headings and data behind them."""

# lm-eval task -> heading of its column, and the data set behind it
BENCHMARKS = {
    "paperlib_gsm8k": ("GSM8K", "gsm8k-test"),
    "paperlib_math500": ("MATH-500", "math500"),
    "paperlib_aime24": ("AIME24", "aime24"),
    "paperlib_amc23": ("AMC23", "amc23"),
    "paperlib_minerva": ("Minerva", "minerva"),
    "paperlib_olympiadbench": ("OlympiadBench", "olympiadbench"),
    "paperlib_math_geometry": ("MATH geometry", "math-geometry"),
    "paperlib_laptop_test": ("GSM8K subset", "gsm8k-test:0-64"),
    # for choosing checkpoints
    "paperlib_laptop_validation": ("GSM8K validation", "gsm8k-train:96-160"),
    "paperlib_gsm8k_validation": ("GSM8K validation", "gsm8k-train:0-256"),
    "paperlib_numinamath_validation": ("NuminaMath validation", "numinamath-tir:2000-2256"),
    "paperlib_meds_validation": ("MEDS validation", "dapo-math-17k+math-3to5:0-256"),
}
TASKS = {
    ("memory_r", "test"): "paperlib_gsm8k+paperlib_math500+paperlib_aime24",  # Table 1
    ("memory_r", "validation"): "paperlib_gsm8k_validation",
    ("meds", "test"): "paperlib_aime24+paperlib_amc23+paperlib_math500+paperlib_minerva"
    "+paperlib_olympiadbench",  # Sec. 4.1
    ("meds", "validation"): "paperlib_meds_validation",
}


def task_data(task: str) -> tuple[str, ...]:
    """The data sets of an evaluation task, of several joined by ``+`` in their order."""
    return tuple(
        BENCHMARKS[one][1] if one in BENCHMARKS else one.replace("_", "-")  # of the tiny world
        for one in task.split("+")
    )
