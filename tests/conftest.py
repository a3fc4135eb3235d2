"""Settings for every test; set before anything heavy is imported."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that asks the network must fail at once
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # results depend on the number of threads
os.environ["PAPERLIB_PROGRESS"] = "0"
os.environ.pop("PAPERLIB_STATUS", None)  # the tests may themselves run below a notebook

settings.register_profile(  # the same examples every time, and no files
    "paperlib", derandomize=True, deadline=None, database=None, max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("paperlib")


@pytest.fixture(scope="module")
def one_thread():
    """For whole runs: results depend on the number of threads, and cores are shared."""
    from paperlib.experiments.grid import fixed_threads

    with fixed_threads(1):
        yield


@pytest.fixture(scope="module")
def real_data():
    """The folder of the papers' data in PAPERLIB_DATA_DIR, or beside the repository."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PAPERLIB_DATA_DIR") or beside)
    if not any((folder / f"gsm8k_train.jsonl{end}").is_file() for end in ("", ".gz")):
        pytest.skip("real data: name a folder of JSONL in PAPERLIB_DATA_DIR")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAPERLIB_DATA_DIR", str(folder))
        yield
