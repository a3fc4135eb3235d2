"""A policy as a Hugging Face folder: what loads from it, and what its card says."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard
from test_store import Correct
from transformers import AutoModelForCausalLM, AutoTokenizer

from paperlib.__main__ import main
from paperlib.environment import environment_record
from paperlib.errors import UserError
from paperlib.files import write_json_atomic
from paperlib.markdown import fenced
from paperlib.rl.checkpoint import save_checkpoint
from paperlib.rl.config import RunConfig
from paperlib.rl.export import base_model, export, training_data
from paperlib.rl.policy import load_policy

EVALUATION = {
    "settings": {"task": "a_task+<b>", "samples": 4, "temperature": 1.0},
    "problems": [
        {"level": "a_task", "n": 4, "correct": 4}, {"level": "a_task", "n": 4, "correct": 1},
        {"level": "<b>", "n": 4, "correct": 0},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder with two checkpoints of different weights, and hostile texts."""
    root = tmp_path_factory.mktemp("export")
    config = RunConfig(
        paper="meds", method="MEDS <script>|x", profile="smoke", seed=7, model=str(root / "base"),
        dataset="gsm8k-train:0-96+/home/me/secret.jsonl", prompt="boxed",
        terms=(Correct(weight="/home/me/encoder"),), max_steps=4,
    )  # fmt: skip
    folder = root / config.name
    write_json_atomic(folder / "config.json", config.to_dict())
    write_json_atomic(folder / "environment.json", environment_record("cpu"))
    model, tokenizer = load_policy("tiny")
    torch.manual_seed(0)
    for step in (2, 4):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * parameter.std() * torch.randn_like(parameter))
        save_checkpoint(folder, step, model, tokenizer, {"step": step})
    rows = [{"step": s, "accuracy": s / 8, "seconds/sample": 1.0} for s in (1, 2, 3, 4)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json_atomic(folder / "evaluations" / "000004-x.json", EVALUATION)
    (folder / "rollouts").mkdir()
    pq.write_table(pa.table({
        "problem_id": ["p|1"], "gold": ["3"], "accuracy": [0.0],
        "completion": ["````\n# not a heading <img src=x>\n```"],
    }), folder / "rollouts" / "000004.parquet")
    write_json_atomic(folder / "complete.json", {"reason": "finished", "step": 4})
    return folder, model, tokenizer


def greedy(model, tokenizer):
    """Text of 16 tokens after a question."""
    turns = [{"role": "user", "content": "Ann has 3 apples and buys 4. How many?"}]
    inputs = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    return model.generate(**inputs, do_sample=False, max_new_tokens=16).tolist()


def test_auto_classes_load_it_and_it_answers_alike(run, tmp_path):
    folder, model, tokenizer = run
    target = export(folder, tmp_path / "new" / "policy")
    loaded = AutoModelForCausalLM.from_pretrained(target), AutoTokenizer.from_pretrained(target)
    assert greedy(*loaded) == greedy(model, tokenizer)
    weights = loaded[0].state_dict()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert loaded[1].chat_template == tokenizer.chat_template
    assert loaded[0].generation_config.eos_token_id == model.generation_config.eos_token_id
    assert {path.suffix for path in target.iterdir()} == {".safetensors", ".json", ".jinja", ".md"}
    assert [path.name for path in target.parent.iterdir()] == ["policy"]  # nothing left behind
    older = export(folder, tmp_path / "older", step=2)
    assert (older / "model.safetensors").read_bytes() != (target / "model.safetensors").read_bytes()
    assert "2 of 4" in (older / "README.md").read_text()


def test_the_card_says_where_it_comes_from_and_shows_texts_as_texts(run, tmp_path):
    folder, *_ = run
    text = (export(folder, tmp_path / "policy") / "README.md").read_text()
    data = ModelCard(text).data
    assert data.datasets == ["openai/gsm8k"] and data.base_model is None
    assert "arxiv:2604.11297" in data.tags and data.library_name == "transformers"
    for line in (
        r"# MEDS &lt;script&gt;\|x on base", r"| method | MEDS &lt;script&gt;\|x |", "| seed | 7 |",
        "| training data | gsm8k-train:0-96 + secret.jsonl |", "| preset | paper |",
        "| generation steps | 4 of 4 (finished) |", "| base model | base |", "| accuracy | 0.5 |",
        r"| a\_task | 2 | temperature 1.0, 4 samples | 62.5 | 100.0 (k = 4) |",
        "| &lt;b&gt; | 1 | temperature 1.0, 4 samples | 0.0 | 0.0 (k = 4) |",
        "Please reason step by step, and put your final answer within \\boxed{}.",
        r"Problem p\|1, right answer 3, graded wrong:",
    ):
        assert line in text.splitlines(), line
    assert "`````\n````\n# not a heading <img src=x>\n```\n`````" in text  # a longer fence
    assert "gsm8k-train: MIT" in text and "seconds/" not in text
    assert "/home/me" not in text and str(folder.parent) not in text
    assert '"weight": "encoder"' in text


def test_names_of_models_and_data():
    assert base_model("Qwen/Qwen3-8B") == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B")
    assert base_model("owner/name::sub/folder") == ("owner/name", "owner/name::sub/folder")
    assert base_model("tiny")[0] is base_model("smollm2-gguf")[0] is None
    assert base_model("/home/me/SmolLM2") == (None, "SmolLM2")
    sources, name = training_data("dapo-math-17k+math-3to5:256-")
    assert [s.repository for s in sources.values()] == [
        "open-r1/DAPO-Math-17k-Processed", "DigitalLearningGmbH/MATH-lighteval"
    ] and name == "dapo-math-17k + math-3to5:256-"
    assert training_data("tiny-train") == ({}, "tiny-train")
    assert fenced("a ``` b", "json") == "````json\na ``` b\n````"


def test_what_cannot_be_exported(run, tmp_path, capsys):
    folder, *_ = run
    with pytest.raises(UserError, match="no config.json"):
        export(tmp_path, tmp_path / "x")
    with pytest.raises(UserError, match="no checkpoint of step 3; it has 2, 4"):
        export(folder, tmp_path / "x", step=3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UserError, match="there already"):
        export(folder, tmp_path / "full")
    weights = folder / "checkpoints" / "000002" / "tokenizer.json"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1])
    assert main(["export", str(folder), str(tmp_path / "x"), "--step", "2"]) == 2
    assert "000002 is damaged (tokenizer.json)" in capsys.readouterr().err
    weights.write_bytes(before)
    assert not (tmp_path / "x").exists()
    assert main(["export", str(folder), str(tmp_path / "x"), "--step", "2"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x'}\n"
