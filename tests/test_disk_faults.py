"""A disk that is full, read-only, emptied or damaged: a clear message, nothing lost, no restart.

A run of three steps with both memories and a checkpoint each is made once and damaged in copies.
"""

import json
import os
import resource
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fault_world import SETTINGS, both_memories, outcome_of
from transformers import PreTrainedModel

from paperlib.errors import UserError
from paperlib.evaluation import harness
from paperlib.evaluation.annotate_prompts import ERROR_CATEGORY, Cache
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Store
from paperlib.files import disk_errors, read_json, read_jsonl, write_json_atomic
from paperlib.rl import collect as collect_module
from paperlib.rl.checkpoint import check_policy, newest_checkpoint
from paperlib.rl.export import export
from paperlib.rl.train import train
from paperlib.tasks.tiny import MODEL_DIR

pytestmark = [
    pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built"),
    pytest.mark.usefixtures("one_thread"),
]
CONFIG = both_memories(max_steps=3, save_steps=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    ensure(root)
    return root


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run."""
    shutil.copytree(finished, tmp_path / "store")
    return Store(tmp_path / "store").run(CONFIG)


def ensure(root: Path, **more):
    return Store(root).run(CONFIG).ensure(device="cpu", progress=False, **more)


def as_killed_in_step_3(run) -> None:
    (run.folder / "complete.json").unlink()
    shutil.rmtree(run.folder / "checkpoints" / "000003")
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "accur')  # and its last line is torn


def everything(folder: Path) -> dict[str, bytes]:
    """All files but the lock."""
    return {str(p.relative_to(folder)): p.read_bytes()
            for p in folder.rglob("*") if p.is_file() and p.name != "lock"}  # fmt: skip


def refused(run, *words: str) -> None:
    """Asking for the run fails with these words and changes nothing."""
    before = everything(run.folder)
    with pytest.raises(UserError) as error:
        run.ensure(device="cpu", progress=False)
    for text in (str(run.folder), *words):
        assert text in str(error.value)
    assert everything(run.folder) == before


# -- full, read-only, gone -----------------------------------------------------------------------


@contextmanager
def full_disk(size: int):
    """No file can grow beyond ``size`` bytes; the system says so as it does of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing_and_the_same_command_goes_on(finished, run):
    as_killed_in_step_3(run)
    # metrics.jsonl does not fit; nor do the weights (3.9 MB); nor does state.pt (8 MB)
    for size in (1_000, 2_000_000, 5_000_000):
        with full_disk(size), pytest.raises(UserError, match="cannot be written.*make room") as e:
            run.ensure(device="cpu", progress=False)
        assert str(run.folder) in str(e.value)
        names = sorted(p.name for p in (run.folder / "checkpoints").iterdir())
        assert names == ["000001", "000002"]  # and no half one that keeps the disk full
        assert newest_checkpoint(run.folder, 1).name == "000002"
        assert [row["step"] for row in run.metrics().to_dict("records")][:2] == [1, 2]
    run.ensure(device="cpu", progress=False)
    assert outcome_of(run.folder) == outcome_of(Store(finished).run(CONFIG).folder)


@pytest.mark.parametrize("error", [
    ConnectionResetError(104, "the hub"), FileNotFoundError(2, "a file"), ValueError("a value"),
    RuntimeError("no such file (os error 2)"),
])  # fmt: skip
def test_other_errors_pass_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as found, disk_errors(tmp_path):
        raise error
    assert found.value is error


@contextmanager
def as_another_user(folder: Path, monkeypatch):
    """In the folder, without root's right to write anywhere; nobody else needs to change."""
    monkeypatch.chdir(folder)  # what lies above may be closed to others
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_read_only_store_is_named_and_what_is_complete_can_be_read(run, monkeypatch):
    write_json_atomic(run.evaluation_path(3, SETTINGS), {"settings": SETTINGS.to_dict()})
    store = run.folder.parents[1]
    folders = [p for p in (store, *store.rglob("*")) if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with as_another_user(store, monkeypatch):
            here = Store(".").run(CONFIG)
            assert here.ensure().status() == "complete" and len(here.rollouts()) == 24
            assert here.evaluation(3, SETTINGS)["settings"] == SETTINGS.to_dict()
            with pytest.raises(UserError, match="smoke/.*cannot be written.*Permission denied"):
                Store(".").run(replace(CONFIG, seed=1)).ensure(device="cpu", progress=False)
    finally:
        for folder in folders:
            folder.chmod(0o755)


# TensorBoard's thread cannot write either, and says so by itself
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", [1, 2])
def test_a_folder_that_is_removed_stops_the_run_and_is_not_made_again(tmp_path, step):
    """After step 1 of 2 the next rollouts are missed; after the last one nothing would be."""
    def remove(rows):
        if rows[-1]["step"] == step:
            shutil.rmtree(run.folder)
        return []

    run = Store(tmp_path).run(replace(CONFIG, max_steps=2, max_completion_length=4))
    with pytest.raises(UserError, match="was removed"):
        run.ensure(device="cpu", progress=False, watch=remove)
    assert not run.folder.exists()


# -- checkpoints ---------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(("name", "damage"), [
    ("model.safetensors", flip), ("state.pt", flip), ("state.pt", cut), ("COMPLETE", cut),
    ("tokenizer.json", Path.unlink),
])  # fmt: skip
def test_a_damaged_checkpoint_is_named_and_the_older_one_offered(run, name, damage):
    (run.folder / "complete.json").unlink()
    damage(run.folder / "checkpoints" / "000003" / name)
    refused(run, "000003 is damaged", "resume from step 2, delete the folder",
            *[name] * (name != "COMPLETE"))  # fmt: skip


def test_a_run_whose_checkpoints_are_gone_does_not_silently_begin_again(run):
    (run.folder / "complete.json").unlink()
    for name in ("000002", "000003"):
        shutil.rmtree(run.folder / "checkpoints" / name)
    refused(run, "000001 is damaged",  # it has no state any more
            "start the run from the beginning, delete or move the run's")  # fmt: skip
    words = ("3 steps in metrics.jsonl but no whole checkpoint", "Nothing was deleted")
    (run.folder / "checkpoints" / "000001" / "COMPLETE").unlink()
    refused(run, *words)
    shutil.rmtree(run.folder / "checkpoints")
    refused(run, *words)


def test_old_state_is_dropped_only_when_the_new_weights_can_be_read(run, monkeypatch):
    as_killed_in_step_3(run)
    real = PreTrainedModel.save_pretrained

    def torn(self, folder, **options):
        real(self, folder, **options)
        cut(Path(folder) / "model.safetensors")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", torn)
    (run.folder / "checkpoints" / "000001" / "state.pt").write_bytes(b"the older of two")
    with pytest.raises(UserError, match="weights of step 3 cannot be read back"):
        run.ensure(device="cpu", progress=False)
    states = sorted(p.parent.name for p in run.folder.glob("checkpoints/*/*.pt"))
    assert states == ["000001", "000002"]
    assert not (run.folder / "checkpoints" / "000003").exists()


def test_what_a_user_keeps_beside_or_in_the_checkpoints_is_never_touched(finished, run, tmp_path):
    """Only a whole name is a step's."""
    as_killed_in_step_3(run)
    checkpoints = run.folder / "checkpoints"
    for name in ("000000", "000002-backup", "000002 copy", "000002 (1)", "000002.bak", "2"):
        shutil.copytree(checkpoints / "000002", checkpoints / name)  # the first as if of a step
    rollouts = run.folder / "rollouts" / "000001.parquet"
    for name in ("000001 copy", "mine"):
        shutil.copy(rollouts, rollouts.with_stem(name))
    (checkpoints / "000000" / "optimizer notes.txt").write_text("mine")
    (checkpoints / "000002" / "notes.txt").write_text("mine")
    mine = [p for p in checkpoints.iterdir() if not (len(p.name) == 6 and p.name.isdigit())]
    files = [checkpoints / "000000" / "optimizer notes.txt", *rollouts.parent.glob("*[ye].parquet"),
             *(path for folder in mine for path in folder.iterdir())]  # fmt: skip
    kept = {path: path.read_bytes() for path in files}
    ensure(run.folder.parents[1])
    assert len(kept) > 30 and {path: path.read_bytes() for path in files} == kept
    assert not (checkpoints / "000000" / "state.pt").exists()
    assert [step for step, _ in run.checkpoints()] == [0, 1, 2, 3]
    assert len(run.rollouts()) == len(Store(finished).run(CONFIG).rollouts())
    card = export(run.folder, tmp_path / "last") / "README.md"
    assert "3 of 3" in card.read_text() and export(run.folder, tmp_path / "policy", 2).exists()


def test_no_evaluation_of_damaged_weights(run, monkeypatch):
    monkeypatch.setattr(harness, "evaluate", lambda *_, **__: {"settings": SETTINGS.to_dict()})
    check_policy(run.folder / "checkpoints" / "000001")  # its state was dropped, which is no damage
    flip(run.folder / "checkpoints" / "000003" / "model.safetensors")
    with pytest.raises(UserError, match="000003 is damaged .model.safetensors"):
        run.evaluation(3, SETTINGS)
    assert not run.evaluation_path(3, SETTINGS).exists()
    assert run.evaluation(2, SETTINGS)


def test_killed_between_checkpoint_and_metrics_no_line_is_lost(finished, run):
    (run.folder / "complete.json").unlink()
    lines = (run.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run.folder / "metrics.jsonl").write_text("".join(lines[:2]))
    run.ensure(device="cpu", progress=False)
    assert outcome_of(run.folder) == outcome_of(Store(finished).run(CONFIG).folder)


def test_a_run_that_has_ended_early_is_not_trained_on_when_only_its_mark_is_missing(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(collect_module, "grade_all", lambda texts, *_, **__: [False] * len(texts))
    config = replace(recipe("meds", "DAPO", "smoke", 0), num_generations=2, max_empty_steps=2,
                     max_generation_batches=1, max_completion_length=4)  # fmt: skip
    train(config, tmp_path, device="cpu", progress=False)
    before = everything(tmp_path)
    done = read_json(tmp_path / "complete.json")
    assert done["step"] == 2 and "for 2 steps" in done["reason"]
    (tmp_path / "complete.json").unlink()
    train(config, tmp_path, device="cpu", progress=False)
    again = read_json(tmp_path / "complete.json")
    assert (again["step"], again["reason"]) == (done["step"], done["reason"])
    assert everything(tmp_path)["metrics.jsonl"] == before["metrics.jsonl"]


# -- metrics, rollouts, evaluations, caches -----------------------------------------------------


def test_metrics_that_were_damaged_stop_the_run_before_it_goes_on(run):
    as_killed_in_step_3(run)
    path = run.folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace('"step"', '"step', 1), *lines[2:]]))
    refused(run, "metrics.jsonl, line 2 is not JSON")
    path.write_text("".join(lines[1:]))
    refused(run, "lacks 1 of the 2 steps that are done (the first is step 1)")


def test_damaged_rollouts_and_evaluations_are_named(run):
    for step, damage in ((2, flip), (3, cut)):
        damage(run.folder / "rollouts" / f"{step:06d}.parquet")
        with pytest.raises(UserError, match=f"{step:06d}.parquet cannot be read.*it is damaged"):
            run.rollouts([1, step])
    assert len(run.rollouts([1])) == 8
    path = run.evaluation_path(3, SETTINGS)
    path.parent.mkdir()
    for text, says in (('{"settings": {"ta', "is not JSON"),
                       ("[]", "was made with other settings; delete it")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(UserError, match=f"{path.name}.*{says}"):
            run.evaluation(3, SETTINGS)


def test_a_damaged_line_of_the_annotations_is_named_and_kept(tmp_path):
    cache = Cache(tmp_path, "model", ERROR_CATEGORY)
    good = json.dumps({"key": "a", "value": 1})
    cache.path.write_text(f'{good}\n{{"key": "b", "val\x00\n{good}\n{{"key": "c')
    with cache.locked(), pytest.raises(UserError, match="line 2 is not JSON"):
        cache.read()
    assert cache.path.read_text().count("\n") == 3  # half a line was cut off, and nothing else
    assert read_jsonl(tmp_path / "none.jsonl") == []
