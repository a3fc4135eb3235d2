"""SIGKILL at any moment: the same command finishes, and nothing tells that it was interrupted."""

import random
import time
from pathlib import Path

import pytest
from fault_world import both_memories, command, finish, kill, outcome, start, the_run, wait_for

from paperlib.files import read_json, read_jsonl, whole_checkpoints, write_texts
from paperlib.tasks.tiny import MODEL_DIR

pytestmark = pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """``engine -> (outcome, metrics with times, seconds of the evaluation)`` of whole runs."""
    known = {}

    def of(engine="ours"):
        if engine not in known:
            root = tmp_path_factory.mktemp(engine)
            finish(command, root, engine)
            (evaluation,) = the_run(root, engine).folder.glob("evaluations/*.json")
            known[engine] = (outcome(root, engine),
                             read_jsonl(the_run(root, engine).folder / "metrics.jsonl"),
                             read_json(evaluation)["seconds"])  # fmt: skip
        return known[engine]

    return of


def kill_in(phase: str, process, root: Path, dice: random.Random, whole, engine="ours") -> None:
    """Kill the process somewhere inside a phase of its work, which the run's folder shows."""
    folder, (_, metrics, evaluation) = the_run(root, engine).folder, whole
    lines = len(read_jsonl(folder / "metrics.jsonl"))
    if phase in ("sampling", "update"):
        done = dice.randrange(lines, len(metrics))  # steps that it is let do
        wait_for(process, lambda: (folder / "config.json").exists()
                 and len(read_jsonl(folder / "metrics.jsonl")) >= done)  # fmt: skip
        of = metrics[done]
        delay = dice.uniform(0, of["seconds/sample"])
        if phase == "update":
            delay = of["seconds/sample"] + dice.uniform(0, of["seconds/update"])
    elif phase in ("checkpoint", "sealed"):
        step = dice.choice([s for s in (2, 4) if s > len(whole_checkpoints(folder)) * 2])
        updates = step * both_memories().mini_batches
        scratch = f"checkpoint-{updates}" if engine == "trl" else f".{step:06d}.tmp"
        sign = f"{step:06d}/COMPLETE" if phase == "sealed" else scratch
        wait_for(process, (folder / "checkpoints" / sign).exists)
        delay = 0 if phase == "sealed" else dice.uniform(0, 0.1)
    else:
        wait_for(process, (folder / "complete.json").exists)
        delay = dice.uniform(0, 0.2 * evaluation)  # a machine that was busy then may be idle now
    time.sleep(delay)
    kill(process)


def test_a_run_that_is_killed_three_times_is_as_if_it_never_was(tmp_path, uninterrupted):
    """In an update, in a checkpoint, in the evaluation; each time the same command goes on."""
    whole, dice = uninterrupted(), random.Random(0)
    for phase in ("update", "checkpoint", "evaluation"):
        kill_in(phase, start(command, tmp_path), tmp_path, dice, whole)
    assert not list(the_run(tmp_path).folder.glob("evaluations/*.json"))
    finish(command, tmp_path)
    assert outcome(tmp_path) == whole[0]


MOMENTS = [
    *[("ours", phase, s) for phase in ("sampling", "update", "checkpoint") for s in (1, 2, 3)],
    ("ours", "sealed", 1), ("ours", "sealed", 2), ("ours", "evaluation", 1),
    ("ours", "evaluation", 2), ("trl", "sampling", 1), ("trl", "update", 1),
    ("trl", "checkpoint", 1), ("trl", "sealed", 1),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "phase", "seed"), MOMENTS)
def test_killed_at_a_random_moment(tmp_path, uninterrupted, engine, phase, seed):
    whole = uninterrupted(engine)
    process = start(command, tmp_path, engine)
    kill_in(phase, process, tmp_path, random.Random(f"{phase}-{seed}"), whole, engine)
    finish(command, tmp_path, engine)
    assert outcome(tmp_path, engine) == whole[0]


# -- tables ------------------------------------------------------------------------------------


TEXTS = [{suffix: letter * 5_000_000 for suffix in (".md", ".csv", ".tex")} for letter in "ab"]


def write_for_ever(root: Path) -> None:
    while True:
        for texts in TEXTS:
            write_texts(root / "figures", "table", texts)  # what write_table writes with


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_while_it_writes_tables_each_file_is_whole(tmp_path, seed):
    """Texts so long that nearly all of the time goes into writing them."""
    dice = random.Random(seed)
    for _ in range(3):
        process = start(write_for_ever, tmp_path)
        wait_for(process, (tmp_path / "figures" / "table.tex").exists)
        time.sleep(dice.uniform(0.05, 0.2))
        kill(process)
        for suffix in TEXTS[0]:
            text = (tmp_path / "figures" / f"table{suffix}").read_text()
            assert text in [texts[suffix] for texts in TEXTS], f"{suffix} is neither of the two"
    paths = write_texts(tmp_path / "figures", "table", TEXTS[1])
    assert [path.read_text() for path in paths] == list(TEXTS[1].values())
