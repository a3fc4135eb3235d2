"""The questions of Tables 6 to 9, and made-up complete runs for the tests of tables."""

from paperlib.files import write_json_atomic
from paperlib.report.memory_r_tables import fixed_questions

MACHINE = {"commit": "c" * 40, "dirty": False,
           "machine": {"cpu": "x", "cores": 2, "device": "cpu"}}  # fmt: skip


def put(run, steps, evaluations):
    """A complete run; ``evaluations``: settings -> step -> list of problems."""
    write_json_atomic(run.folder / "config.json", run.config.to_dict())
    write_json_atomic(run.folder / "environment.json", MACHINE)
    for step in steps:
        mark = run.folder / "checkpoints" / f"{step:06d}" / "COMPLETE"
        mark.parent.mkdir(parents=True)
        mark.touch()
    write_json_atomic(run.folder / "complete.json", {"step": steps[-1]})
    for settings, by_step in evaluations:
        for step, problems in by_step.items():
            result = {"settings": settings.to_dict(), "problems": problems}
            write_json_atomic(run.evaluation_path(step, settings), result)
    return run


def test_the_hundred_questions_are_the_first_of_each_level():
    many = [{"id": f"{i}-{level}", "level": level} for level in (1, 2, 3, 4) for i in range(40)]
    chosen = fixed_questions({"settings": {"task": "tiny_test"}, "problems": many})
    assert [p["id"] for p in chosen[24:26]] == ["24-1", "0-2"] and len(chosen) == 100
    alone = {"settings": {"task": "paperlib_math_geometry"}, "problems": many}
    assert fixed_questions(alone) == many[:100]  # a benchmark alone keeps its own levels
