"""The TRL engine: settings, TRL's own methods, dynamic sampling, resuming."""

import inspect
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
import trl
from fault_world import GLOSSARY, outcome_of
from test_table1 import put
from transformers import TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from paperlib.__main__ import PARSER, main
from paperlib.errors import UserError
from paperlib.experiments.plan import make_plan
from paperlib.experiments.recipes import LAUNCH, METHODS, methods, recipe
from paperlib.experiments.rows import table1_runs
from paperlib.experiments.slurm import LAUNCH_DIR
from paperlib.experiments.store import Store
from paperlib.files import read_json, read_jsonl, write_json_atomic
from paperlib.report import table1
from paperlib.rl import trl_engine, trl_rollouts, trl_trainer
from paperlib.rl.collect import make_stream
from paperlib.rl.config import OVERSAMPLING
from paperlib.rl.export import export
from paperlib.rl.policy import load_policy
from paperlib.rl.train import rate_factor
from paperlib.rl.train import train as train_ours
from paperlib.rl.trl_engine import FIXED, SAME, grpo_settings
from paperlib.rl.trl_rollouts import deal, keep_groups
from paperlib.rl.trl_trainer import StepCallback, TermsTrainer
from paperlib.tasks.data import load_problems
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.tiny import MODEL_DIR
from tests.test_train import interrupted, stateful

pytestmark = pytest.mark.usefixtures("one_thread")


def smoke(method="DAPO", **changes):
    paper = "memory_r" if method in METHODS["memory_r"] else "meds"
    small = {"num_generations": 4, "max_steps": 4, "save_steps": 2, "max_completion_length": 40}
    return replace(recipe(paper, method, "smoke", 0), **{"engine": "trl", **small, **changes})


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Memory-R+", "MEDS", "GRPO"])
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_every_algorithmic_field_comes_from_the_config(tmp_path, name, preset):
    paper = "memory_r" if name == "Memory-R+" else "meds"
    config = replace(recipe(paper, name, "paper", 3, preset), engine="trl", precision="fp32",
                     mask_truncated_completions=name == "GRPO", top_p=0.9)  # fmt: skip
    args = GRPOConfig(output_dir=str(tmp_path), **grpo_settings(config))
    assert {n: getattr(args, n) for n in SAME} == {n: getattr(config, n) for n in SAME}
    assert {n: getattr(args, n) for n in FIXED} == FIXED
    assert args.delta == config.dual_clip
    assert args.activation_checkpointing == config.gradient_checkpointing
    # completions, not prompts; updates, not generation steps
    per_update = args.per_device_train_batch_size * args.gradient_accumulation_steps
    assert args.generation_batch_size == per_update * config.mini_batches
    assert args.generation_batch_size == config.prompts_per_step * config.num_generations
    assert args.steps_per_generation == config.mini_batches * args.gradient_accumulation_steps
    assert args.max_steps == config.max_steps * config.mini_batches
    assert args.save_steps == config.save_steps * config.mini_batches
    width = config.max_prompt_length + config.max_completion_length
    assert args.per_device_train_batch_size * width <= max(config.micro_batch_tokens, width)


# GRPOConfig's own fields that change no result as they are used here; the first three are about
# advantages, which are ours
INERT = {
    "scale_rewards", "multi_objective_aggregation", "reward_weights",
    "model_init_kwargs", "trust_remote_code", "pad_to_multiple_of", "cache_implementation",
    "steps_per_generation", "ds3_gather_for_generation", "transformers_continuous_batching_config",
    "use_transformers_paged", "log_completions", "log_multimodal", "log_unique_prompts",
    "log_completions_hub_repo", "num_completions_to_print", "max_tool_calling_iterations",
    "sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos", "vespo_k_neg",
    "vespo_lambda_pos", "vespo_lambda_neg", "entropy_coef_min", "entropy_coef_max",
    "entropy_coef_delta", "entropy_target", "ref_model_mixup_alpha", "ref_model_sync_steps",
}  # fmt: skip


def test_no_field_of_grpo_config_is_left_to_its_default():
    """A TRL release with a new setting fails here, by the setting's name."""
    known = {*grpo_settings(smoke(), "cuda", 8, vllm=True), *INERT}
    known |= {f.name for f in fields(TrainingArguments)}
    new = {f.name for f in fields(GRPOConfig) if not f.name.startswith("vllm_")} - known
    assert not new, f"TRL {trl.__version__} has settings that nothing is said about: {new}"


def test_completions_are_shared_out_among_processes():
    config = smoke("MEDS", num_generations=6)  # 4 prompts x 6 / 2 mini-batches
    assert grpo_settings(config, processes=4)["per_device_train_batch_size"] == 3
    with pytest.raises(UserError, match="12 completions .* do not divide by 8 processes"):
        grpo_settings(config, processes=8)
    # MEDS in `paper`, 8 GPUs: 16 prompts x 16 rollouts an update, 2 rows of 4,096 tokens at once
    paper = grpo_settings(replace(recipe("meds", "MEDS", "paper", 0), engine="trl"), processes=8)
    assert paper["generation_batch_size"] == 512 * 16
    assert paper["per_device_train_batch_size"] * paper["gradient_accumulation_steps"] == 32
    assert paper["per_device_train_batch_size"] == 4


@pytest.mark.parametrize(("changes", "words"), [
    ({"entropy_alpha": 0.4}, "no entropy advantage .entropy_alpha is 0.4"),
    ({"dynamic_sampling": True, "loss_type": "grpo"}, "dynamic sampling with loss_type 'grpo'"),
    ({"max_steps": 0}, "base model"),
    ({"engine": "verl"}, "unknown engine 'verl'; valid: ours, trl"),
    ({"engine": "ours"}, "engine is 'ours'; this one trains 'trl'"),
    ({"beta": 0.1, "model": "owner/name::folder"}, "cannot load 'owner/name::folder'"),
    ({"beta": 0.1, "model": "smollm2-gguf"}, "cannot load 'smollm2-gguf'"),
])  # fmt: skip
def test_what_trl_cannot_do_is_refused_by_name(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        trl_engine.make_trainer(smoke("GRPO", **changes), tmp_path)


def test_recipes_of_an_engine():
    assert methods("meds", "trl") == ("Base", "GRPO", "DAPO", "MEDS")
    assert methods("memory_r", "trl") == METHODS["memory_r"]
    ours, theirs = (recipe("meds", "MEDS", "tiny", 1, engine=e) for e in ("ours", "trl"))
    assert replace(theirs, engine="ours") == ours and theirs.name != ours.name
    assert "engine" not in ours.to_dict() and theirs.to_dict()["engine"] == "trl"
    assert recipe("meds", "Base", "tiny", 1, engine="trl") == recipe("meds", "Base", "tiny", 0)
    with pytest.raises(UserError, match="'GRPO w/ Entropy Adv': engine 'trl' has no entropy adv"):
        recipe("meds", "GRPO w/ Entropy Adv", "tiny", 0, engine="trl")
    with pytest.raises(UserError, match="unknown engine 'verl'"):
        recipe("meds", "Base", "tiny", 0, engine="verl")
    with pytest.raises(UserError, match="use paperlib.rl.trl_engine.train"):
        train_ours(theirs, Path("nowhere"))


def test_tables_name_the_engine_and_its_approximation(tmp_path):
    store = Store(tmp_path)
    of_trl = {"tiny": table1_runs("meds", "tiny", "paper", (0,), store, engine="trl")}
    table = table1.table1("meds", of_trl, "tiny", "paper", "trl")
    assert table.title.startswith("MEDS Table 1, profile tiny, preset paper, engine trl:")
    assert {row.label for row in table.rows} == {"Base", "GRPO", "DAPO", "MEDS"}
    words = "Not in this table: GRPO w/ Entropy Adv, which engine trl refuses."
    assert words in table.footer
    of_ours = {"tiny": table1_runs("meds", "tiny", "paper", (0,), store)}
    ours = table1.table1("meds", of_ours, "tiny", "paper")
    assert "engine" not in ours.title and len(ours.rows) > len(table.rows)
    assert not any("refuses" in line for line in ours.footer)

    runs = [store.run(recipe("meds", m, "tiny", 0, engine=e))
            for m, e in (("DAPO", "trl"), ("GRPO", "trl"), ("MEDS", "ours"))]  # fmt: skip
    for run in runs:
        put(run, (48,), [])
    lines = table1.provenance(runs)[3:]
    assert lines[0] == "Engine: TRL in 2 of 3 runs."
    assert lines[1].startswith("Approximation: in DAPO dynamic sampling is one draw of 2 times")
    assert table1.provenance(runs[2:])[3:] == ()


@pytest.mark.parametrize("name", ["one_gpu", "eight_gpus_ddp", "eight_gpus_zero3",
                                  "eight_gpus_fsdp", "eight_gpus_vllm"])  # fmt: skip
def test_launch_files_are_accelerates(name):
    from accelerate.commands.config.config_args import load_config_from_file

    path = LAUNCH_DIR / f"{name}.yaml"
    settings = load_config_from_file(str(path))  # refuses keys that it does not know
    assert settings.num_processes == (1 if name == "one_gpu" else 8)
    kinds = {"one_gpu": "NO", "eight_gpus_ddp": "MULTI_GPU", "eight_gpus_fsdp": "FSDP"}
    kind = kinds.get(name, "DEEPSPEED")
    assert settings.distributed_type == kind
    assert not settings.mixed_precision  # the recipe's
    # the command in the file is one that the command line understands
    words = path.read_text().partition("-m paperlib ")[2].partition("\ncompute")[0]
    command = words.replace("#", " ").replace("\\", " ").split()
    options = PARSER.parse_args(command)
    config = recipe(options.paper, options.method, options.profile, 0, engine=options.engine)
    assert config.engine == "trl" and options.vllm == (name == "eight_gpus_vllm")
    grpo_settings(config, "cuda", settings.num_processes)
    assert {file for file, _, _ in LAUNCH.values()} <= {p.name for p in LAUNCH_DIR.iterdir()}


def test_a_plan_shares_the_memory_out_among_the_gpus(tmp_path):
    store = Store(tmp_path)
    text, missing = make_plan(["table1-meds"], "paper", "paper", (0,), store, engine="trl")
    assert "GRPO w/ Entropy Adv" not in text
    assert not any("GPU memory" in line for line in missing)  # 8 x 80 GB are enough


def test_only_the_first_process_of_a_launcher_takes_the_lock(tmp_path, monkeypatch):
    run = Store(tmp_path).run(smoke())
    with run._locked():
        monkeypatch.setenv("RANK", "3")
        with run._locked():  # would wait for ever
            assert (run.folder / "lock.json").exists()
        assert (run.folder / "lock.json").exists()


def test_vllm_is_refused_where_it_would_not_be_used(tmp_path, capsys):
    arguments = "train --paper meds --method DAPO --profile smoke --vllm --runs".split()
    assert main([*arguments, str(tmp_path)]) == 2
    assert "--vllm is for --engine trl" in capsys.readouterr().err
    assert grpo_settings(smoke(), "cuda", 8, vllm=True)["vllm_max_model_length"] == 120


# -- TRL's methods -----------------------------------------------------------------------------

# what is overridden, in the order in which a step calls it
SIGNATURES = {
    "get_decay_parameter_names": "self, model",
    "_prepare_inputs": "self, generation_batch",
    "_tokenize_prompts": "self, prompts",
    "_compute_loss": "self, model, inputs",
    "_clip_grad_norm": "self, model",
    "_save_checkpoint": "self, model, trial",
}  # fmt: skip


def test_signatures_of_what_is_overridden():
    both = set(vars(TermsTrainer)) & set(dir(GRPOTrainer))
    assert {name for name in both if not name.startswith("__")} == set(SIGNATURES)
    for name, expected in SIGNATURES.items():
        where = f"TRL {trl.__version__}: GRPOTrainer.{name}"
        found = ", ".join(inspect.signature(getattr(GRPOTrainer, name)).parameters)
        assert found == expected, f"{where} takes ({found}), not ({expected})"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of MEDS with another memory, and the order in which methods were first called."""
    order: dict[str, None] = {}
    folder = tmp_path_factory.mktemp("trl") / "run"

    def spied(name, real):
        return lambda self, *args, **kwargs: (
            order.setdefault(name), real(self, *args, **kwargs)
        )[1]  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        for name in SIGNATURES:
            patch.setattr(TermsTrainer, name, spied(name, getattr(TermsTrainer, name)))
        torch.set_num_threads(1)
        trl_engine.train(stateful(**MEDS), folder, device="cpu", progress=False)
    return folder, list(order)


MEDS = {"engine": "trl", "max_steps": 4, "max_completion_length": 40, "micro_batch_tokens": 640}


def test_order_of_what_is_overridden(finished):
    _, order = finished
    for found, name in zip(order, SIGNATURES, strict=True):
        assert found == name, f"TRL {trl.__version__} calls {found} where {name} was expected"


# -- data and rollouts -------------------------------------------------------------------------


def test_prompts_are_our_loops_in_its_order(tmp_path):
    config = smoke("DAPO", max_steps=5)  # 40 of 8 problems: over the epochs
    trainer = trl_engine.make_trainer(config, tmp_path)
    _, tokenizer = load_policy("tiny")
    stream = make_stream(config, load_problems(config.dataset), trainer.model, tokenizer)
    wanted = [stream.problems[i] for i in stream.next(5 * OVERSAMPLING * config.prompts_per_step)]
    asked = []
    for step in range(5):
        trainer.state.global_step = step * config.mini_batches
        asked += [row["id"] for row in trainer.prompts()]
    assert asked == [p.id for p in wanted for _ in range(config.num_generations)]
    ids, images, more = trainer._tokenize_prompts([wanted[0].question] * 2)
    assert ids == [build_prompt(tokenizer, wanted[0].question, config.prompt)] * 2
    assert (images, more) == (None, {})


# what a base model's generation config may hold, beside its token ids
SAMPLING = {
    "do_sample": True, "temperature": 0.2, "top_k": 2, "top_p": 0.5, "repetition_penalty": 1.3,
    "min_p": 0.3, "typical_p": 0.3, "epsilon_cutoff": 0.2, "eta_cutoff": 0.2, "top_h": 0.2,
    "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 2, "bad_words_ids": [[20], [21, 22]],
    "sequence_bias": [[[20], 9.0]], "suppress_tokens": list(range(8, 40)),
    "begin_suppress_tokens": list(range(8, 40)), "min_length": 99, "max_length": 120,
    "min_new_tokens": 40, "max_new_tokens": 2, "stop_strings": ["a", "1"], "forced_bos_token_id": 7,
    "forced_eos_token_id": 7, "exponential_decay_length_penalty": [1, 9.0], "num_beams": 2,
    "length_penalty": 3.0, "num_return_sequences": 2, "renormalize_logits": True,
    "guidance_scale": 3.0, "remove_invalid_values": True, "penalty_alpha": 0.6,
    "encoder_repetition_penalty": 2.0, "use_cache": False, "output_scores": True,
    "return_dict_in_generate": True,
}  # fmt: skip


def test_a_models_generation_config_reaches_no_rollout(tmp_path):
    plain, rollouts = read_json(MODEL_DIR / "generation_config.json"), []
    ids = {key: value for key, value in plain.items() if key.endswith("_token_id")}
    shutil.copytree(MODEL_DIR, tmp_path / "base")
    for name, content in (("plain", plain), ("all", {**SAMPLING, **ids})):
        write_json_atomic(tmp_path / "base" / "generation_config.json", content)
        kept = load_policy(tmp_path / "base")[0].generation_config.to_diff_dict()
        assert set(kept) - {"transformers_version"} <= set(ids)
        config = smoke("GRPO", model=str(tmp_path / "base"), max_steps=1, save_steps=1)
        trl_engine.train(config, tmp_path / name, device="cpu", progress=False)
        rollouts.append(outcome_of(tmp_path / name)["rollouts"])
    assert rollouts[0] == rollouts[1]


@pytest.mark.parametrize("engine", ["ours", "trl"])
def test_a_checkpoint_lists_every_token_that_ended_completions(tmp_path, engine):
    """As Qwen2.5-Math: the base lists the end of a text, the template closes turns with another."""
    base = tmp_path / "base"
    shutil.copytree(MODEL_DIR, base)
    for file, key, value in (("generation_config", "eos_token_id", [0, 7]),
                             ("config", "eos_token_id", 0),
                             ("tokenizer_config", "eos_token", "<|pad|>")):  # fmt: skip
        path = base / f"{file}.json"
        write_json_atomic(path, {**read_json(path), key: value})
    config = smoke("GRPO", model=str(base), engine=engine, max_steps=1, save_steps=1)
    train = train_ours if engine == "ours" else trl_engine.train
    folder = tmp_path / config.name
    train(config, folder, device="cpu", progress=False)
    policy = export(folder, tmp_path / "policy")
    assert sorted(read_json(policy / "generation_config.json")["eos_token_id"]) == [0, 2, 7]


def test_learning_rate_moves_once_a_generation_step(tmp_path):
    config = smoke("Cosine", mini_batches=2, max_steps=6, warmup_steps=2)
    trainer = trl_engine.make_trainer(config, tmp_path)
    trainer.create_optimizer_and_scheduler(trainer.args.max_steps)
    groups, rates = trainer.optimizer.param_groups, []
    for update in range(12):
        trainer.state.global_step = update
        StepCallback(trainer).on_step_begin(None, None, None, trainer.optimizer)
        rates += {group["lr"] for group in groups}
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    expected = [config.learning_rate * rate_factor(config, 1 + i) for i in range(6)]
    assert rates == [rate for rate in expected for _ in range(2)]
    decays = {group["weight_decay"] for group in groups if group["params"]}
    assert decays == {config.weight_decay}  # norms too


def test_dynamic_sampling_keeps_the_first_mixed_groups_and_counts():
    def keep(*accuracy, **changes):  # groups of two, two prompts a step
        config = smoke("DAPO", num_generations=2, prompts_per_step=2, mini_batches=2, **changes)
        return keep_groups(config, torch.tensor(accuracy, dtype=torch.float64))

    assert keep(1, 1, 0, 1, 0, 0, 1, 0) == ([2, 3, 6, 7], {
        "generation_batches": 1, "groups_drawn": 4, "groups_kept": 2, "groups_dropped": 2,
        "accuracy_drawn": 0.5,
    })  # fmt: skip
    kept, counts = keep(0, 1, 0, 1, 0, 1, 0, 1)  # more than are needed: not "dropped"
    assert kept == [0, 1, 2, 3] and counts["groups_dropped"] == 0 and counts["groups_kept"] == 2
    assert keep(1, 1, 1, 1, 0, 0, 1, 1)[0] == []
    assert keep(1, 1, 0, 0, dynamic_sampling=False)[0] == [0, 1, 2, 3]


def dealing(kept, process=0, processes=1):
    """Micro-batches of one row each; row i has i + 1 completion tokens and the token i."""
    config = smoke("DAPO", num_generations=2, prompts_per_step=2, mini_batches=2)
    mask, ids = torch.ones(8, 8).tril().long(), torch.arange(8)[:, None]
    rows = {"prompt_ids": ids, "prompt_mask": mask[:, :1], "completion_ids": ids * mask,
            "completion_mask": mask}  # fmt: skip
    return deal(config, rows, kept, torch.arange(8.0), micro_batch=1, process=process,
                processes=processes)  # fmt: skip


def test_rows_are_dealt_group_by_group_whatever_the_processes():
    dealt, windows = dealing([2, 3, 6, 7])
    assert windows == [2, 2]
    assert [b["prompt_ids"].item() for b in dealt] == [2, 3, 6, 7]
    assert [b["advantages"].item() for b in dealt] == [2, 3, 6, 7]
    assert [b["completion_ids"].shape[1] for b in dealt] == [3, 4, 7, 8]  # no idle columns
    # tokens of the mini-batch, in TRL's unit of the whole batch: times the mini-batches
    assert [b["num_items_in_batch"].item() for b in dealt] == [14, 14, 30, 30]
    two = [dealing([2, 3, 6, 7], process, 2)[0] for process in (0, 1)]
    assert [[b["prompt_ids"].item() for b in of] for of in two] == [[2, 6], [3, 7]]
    assert [[b["tokens"].item() for b in of] for of in two] == [[7, 15], [7, 15]]

    # too few groups are filled up with rows that teach nothing
    dealt, windows = dealing([4, 5])
    assert windows == [2, 0]
    assert [b["completion_mask"].sum().item() for b in dealt] == [5, 6, 0, 0]
    assert [b["advantages"].item() for b in dealt] == [4, 5, 0, 0]
    assert dealing([])[1] == [0, 0]


def test_an_update_without_anything_to_learn_from_changes_nothing(tmp_path):
    trainer = trl_engine.make_trainer(smoke("DAPO"), tmp_path)
    trainer.create_optimizer_and_scheduler(trainer.args.max_steps)
    weight = next(trainer.model.parameters())
    trainer.norms, trainer.skipped = [], 0

    def update(rows, gradient):
        trainer.real_rows = [rows, rows]
        for p in trainer.model.parameters():
            p.grad = torch.full_like(p, gradient)
        before = weight.detach().clone()
        trainer._clip_grad_norm(trainer.model)
        trainer.optimizer.step()
        return not torch.equal(weight, before)

    trainer.optimizer.param_groups[0]["lr"] = trainer.optimizer.param_groups[-1]["lr"] = 1e-3
    assert update(8, 1.0)  # also gives Adam moments that would move the weights
    assert not update(0, 1.0)
    assert not update(8, float("inf"))
    assert (len(trainer.norms), trainer.skipped) == (1, 1)


# -- the run folder ----------------------------------------------------------------------------


def test_the_folder_is_our_loops(finished):
    folder, _ = finished
    config = stateful(**MEDS)
    assert read_json(folder / "config.json")["engine"] == "trl"
    assert {k: read_json(folder / "complete.json")[k] for k in ("reason", "step")} == {
        "reason": "finished", "step": 4,
    }
    rows = read_jsonl(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    names = {term.name for term in config.terms}
    for row in rows:
        assert row["groups_drawn"] == OVERSAMPLING * config.prompts_per_step
        assert row["updates"] == config.mini_batches and row["entropy"] > 0
        unknown = set(row) - GLOSSARY
        assert {key.split("/")[1] for key in unknown} == names, unknown
    assert [p.name for p in sorted((folder / "checkpoints").iterdir())] == ["000002", "000004"]
    model, tokenizer = load_policy(folder / "checkpoints" / "000004")
    assert tokenizer.chat_template and next(model.parameters()).isfinite().all()


def test_interrupted_and_resumed_is_uninterrupted(finished, tmp_path):
    """Bit for bit on the CPU: weights, rollouts, metrics; memories and global generators too."""
    interrupted(stateful(**MEDS), tmp_path / "run", trl_trainer, trl_engine.train, step=4)
    found = outcome_of(tmp_path / "run")
    assert found == outcome_of(finished[0])
    assert found["memories"]["000004"]["cluster_penalty"]["visits"]


def test_a_run_without_mixed_groups_ends_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(trl_rollouts, "grade_all", lambda texts, *_, **__: [False] * len(texts))
    config = smoke("DAPO", max_empty_steps=2, max_completion_length=8, save_steps=4)
    trl_engine.train(config, tmp_path, device="cpu", progress=False)
    done = read_json(tmp_path / "complete.json")
    assert (done["step"], done["reason"]) == (
        2, "no group with spread in accuracy for 2 steps",
    )  # fmt: skip
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["groups_kept"] for row in rows] == [0, 0] and "reward" not in rows[0]
    assert not list(tmp_path.glob("rollouts/*"))
    start, end = (load_policy(m)[0].state_dict() for m in
                  ("tiny", tmp_path / "checkpoints" / "000002"))  # fmt: skip
    assert all(torch.equal(start[key], end[key]) for key in start)
    # killed before its mark was written: it is not trained on
    (tmp_path / "complete.json").unlink()
    trl_engine.train(config, tmp_path, device="cpu", progress=False)
    again = read_json(tmp_path / "complete.json")
    assert (again["step"], again["reason"]) == (done["step"], done["reason"])
    assert read_jsonl(tmp_path / "metrics.jsonl") == rows


def test_a_full_disk_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trl_trainer, "save_state", full)
    config = smoke("GRPO", max_completion_length=4, save_steps=1)
    with pytest.raises(UserError, match="cannot be written.*No space left"):
        Store(tmp_path).run(config).ensure(device="cpu", progress=False)
    assert not list(tmp_path.glob("*/*/checkpoints/*"))
