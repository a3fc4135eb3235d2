"""The catalogue: where each public data set is, what it holds, and how its rows are read.

Every set comes from a folder of JSONL (``file``) or from the hub (``repository`` at ``revision``).
Files have the fields ``question`` and ``answer``, most also ``level`` and ``subject``; hub
repositories have fields of their own, named here. ``rows``, ``empty`` and ``digest`` were measured
on the files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One data set."""

    name: str
    role: str  # "train" or "test"
    rows: int  # of the file
    file: str  # in the folder; .jsonl or .jsonl.gz, either is found
    digest: str  # of all (question, answer) pairs of the file, see data.digest
    repository: str | None = None  # on the hub; None: in no repository we know
    config: str | None = None
    split: str = "test"
    revision: str = ""  # commit of the repository
    question: str = "question"  # the hub's fields
    answer: str = "answer"
    # the answer field is a "text", a list of "spellings", ends in "hashes", or has a "box"
    gold: str = "text"
    level: str | None = None
    subject: str | None = None
    levels: tuple[int, ...] = ()  # keep these levels of the hub's rows; none: all
    hub_rows: int | None = None  # where the hub's count is another
    empty: int = 0  # rows of the file without a gold answer
    licence: str = "not declared"
    note: str = ""


_GSM8K = dict(
    repository="openai/gsm8k", config="main", gold="hashes", licence="MIT",
    revision="740312add88f781978c0658806c59bc2815b9866",
)  # fmt: skip
_AMC = "AMC is two benchmarks: amc23 has 40 problems (2023), amc-aimo those and 43 of 2022."
_MINERVA = (
    "Minerva has two answer keys: minerva is the one of Qwen2.5-Math's evaluation, minerva-oat the "
    "one of understand-r1-zero."
)

_SOURCES = (
    Source(
        "gsm8k-train", "train", 7473, "gsm8k_train.jsonl.gz", "d491a0f8c285134a",
        split="train", **_GSM8K,
    ),
    Source("gsm8k-test", "test", 1319, "gsm8k_test.jsonl", "e335a083dfca7747", **_GSM8K),
    Source(
        "numinamath-tir", "train", 20000, "numinamath_20k.jsonl.gz", "33f9f831c01630eb",
        repository="AI-MO/NuminaMath-TIR", split="train", hub_rows=72441,
        revision="77a91d7b7a1a98ac4b1beb7d86c09d156b935dcd",
        question="problem", answer="solution", gold="box", licence="Apache-2.0",
        note="Two draws: the file has 20,000 problems of NuminaMath with their answers, the hub "
        "72,441 of NuminaMath-TIR, where the gold is the last box of the worked solution. The "
        "Memory-R+ paper trained on 2,000 of the hub's. 13 rows of the file ask a question of "
        "math-geometry, 1 of olympiadbench.",
    ),
    # The released MEDS code reads this repository. It has each problem once, without the prompt
    # around it; BytedTsinghua-SIA/DAPO-Math-17k has 1,791,700 rows, each problem 100 times.
    Source(
        "dapo-math-17k", "train", 17917, "dapo_math_17k.jsonl.gz", "cfe1ba088c64dbac",
        repository="open-r1/DAPO-Math-17k-Processed", config="all", split="train", hub_rows=17398,
        revision="31dd309567e3da778038cc87d868b6097a3ccf68", question="prompt", answer="solution",
        note="The file has 17,917 rows, some of them twice; the hub's are 17,398, without repeats. "
        "3,432 questions of the file are Chinese; 20 of them end in an instruction of their own. "
        "8 rows of the file ask a question of math500, 11 of amc23, 9 of olympiadbench, 97 of "
        "math-geometry.",
    ),
    # The released MEDS code reads this repository; that its file is the training split is ours.
    Source(
        "math-3to5", "train", 5586, "math_train_lvl3to5.jsonl.gz", "5ccb2dfc2061d30b",
        repository="DigitalLearningGmbH/MATH-lighteval", config="default", split="train",
        revision="0530c78699ea5e8eb5530600900e1f328b48acad",
        question="problem", answer="solution", gold="box", level="level", subject="type",
        levels=(3, 4, 5), empty=2, licence="MIT",
        note="Levels 3 to 5 of MATH's 7,500 training problems; 3 of them are in olympiadbench.",
    ),
    Source(
        "math500", "test", 500, "math500.jsonl", "c33ea41dfe1209f6",
        repository="HuggingFaceH4/MATH-500", question="problem", level="level", subject="subject",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    ),
    # The set of the released Memory-R code; math-ai/aime24 has the same problems.
    Source(
        "aime24", "test", 30, "aime24.jsonl", "7d16ba2d45f6e9e8",
        repository="HuggingFaceH4/aime_2024", split="train", question="problem",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    ),
    Source(
        "amc23", "test", 40, "amc23.jsonl", "23ca07294149383e",
        repository="math-ai/amc23", revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
        note=_AMC + " The MEDS paper's is amc23.",
    ),
    Source(
        "amc-aimo", "test", 83, "amc_oat.jsonl", "3b60edc6ee591c03",
        repository="AI-MO/aimo-validation-amc", split="train", question="problem",
        revision="69d78a4a2c840e82d69af6bc742bda09005f6316", licence="Apache-2.0",
        note=_AMC,
    ),
    Source(
        "minerva", "test", 272, "minerva_math.jsonl", "e75dee026a3b7d37",
        repository="math-ai/minervamath", revision="ee46ddc498933b1977577953250ca5c66be64f96",
        note=_MINERVA,
    ),
    Source(
        "minerva-oat", "test", 272, "minerva_math_oat.jsonl", "7c1d554f0e603ae7",
        gold="spellings",
        note=_MINERVA + " 75 rows of minerva-oat give two or three spellings; the first counts. "
        "131 of the 272 differ in text.",
    ),
    Source(
        "olympiadbench", "test", 675, "olympiadbench.jsonl.gz", "7e45c9d9b6585d36",
        repository="math-ai/olympiadbench", answer="final_answer", subject="subfield",
        revision="4faaf1e6ec17d11a4218a9bf4c049ecaf954dd84", hub_rows=674,
        note="The hub has one row fewer than the 675 of Qwen2.5-Math's file, which papers use.",
    ),
    Source(
        "olympiadbench-oat", "test", 675, "olympiadbench_oat.jsonl", "7e45c9d9b6585d36",
        note="understand-r1-zero's copy of olympiadbench.",
    ),
    Source(
        "math-geometry", "test", 479, "math_geometry_test.jsonl", "b45f6046dfecdbd9",
        repository="EleutherAI/hendrycks_math", config="geometry", licence="MIT",
        revision="21a5633873b6a120296cce3e2df9d5550074f4a3",
        question="problem", answer="solution", gold="box", level="level", subject="type",
    ),
)  # fmt: skip

CATALOGUE: dict[str, Source] = {source.name: source for source in _SOURCES}
