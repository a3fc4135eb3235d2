"""``make tiny-model``: the tokenizer, the base model and the sentence encoder, from nothing.

Deterministic for a given CPU type and torch version (fixed seeds, one thread). The
result is shipped in ``assets/``; this recipe shows where it comes from and rebuilds it.
"""

import random
import shutil
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from paperlib.files import write_json_atomic
from paperlib.tasks.prompts import SYSTEM_PROMPTS, build_prompt
from paperlib.tasks.tiny import ENCODER_DIR, MODEL_DIR, WEAK_DIR
from paperlib.tasks.tiny.problems import LEVELS, draw_problem, held_out_questions
from paperlib.tasks.tiny.solutions import HABITS, draw_solution, write_solution

SHARES = 2  # of a batch, each with a generator of its own: another number gives other weights
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Deep and narrow: MEDS looks at the later half of the layers, so there must be a half worth it.
MODEL = {
    "vocab_size": 512, "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "tie_word_embeddings": True, "rope_theta": 10000.0,
}
MODEL_BATCH, MICRO_BATCH = 64, 16
# Steps and learning rate of each stage; the second mends the arithmetic: after the first a quarter
# of all responses slips.
STAGES = ((850, 4e-3), (300, 2e-3))
# The weak base goes on for so long on solutions of which so many have no format.
WEAK_STAGE, WEAK_BROKEN = (60, 1e-3), 0.8
ENCODER_STEPS, ENCODER_BATCH, ENCODER_LR = 400, 64, 2e-3
Row = tuple[torch.Tensor, torch.Tensor]  # token ids of prompt and solution; -1 for the prompt's


def build(seed: int = 0) -> None:
    """Train and save model and encoder; about twenty minutes on one core."""
    started = time.time()
    torch.set_num_threads(1)
    tokenizer = build_tokenizer(seed)
    for folder in (MODEL_DIR, WEAK_DIR):
        tokenizer.save_pretrained(folder)
    loss = _build_model(tokenizer, seed)
    _build_encoder(tokenizer, ENCODER_DIR, seed)
    write_json_atomic(MODEL_DIR / "recipe.json", {
        "seed": seed, "stages": STAGES, "batch": MODEL_BATCH,
        "final_loss": round(loss, 4), "seconds": round(time.time() - started),
        "torch": torch.__version__.split("+")[0],
    })  # fmt: skip


def build_tokenizer(seed: int):
    """A byte-level BPE of 512 tokens with single digits: decode(encode(text)) == text."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    rng = random.Random(f"tokenizer-{seed}")
    corpus = [SYSTEM_PROMPTS["tags"], SYSTEM_PROMPTS["boxed"]] * 200
    corpus += ["system\n", "user\n", "assistant\n"] * 200
    for _ in range(4000):
        problem = draw_problem(rng, rng.choice(LEVELS))
        corpus += [problem.question, draw_solution(rng, problem, rng.choice(("tags", "boxed")))]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        # a word with the white space before it, so that "\n</reasoning>" is one token
        pre_tokenizers.Split(Regex(r"\s*\S+|\s+"), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=MODEL["vocab_size"], special_tokens=[PAD, START, END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=PAD, eos_token=END, additional_special_tokens=[START],
        clean_up_tokenization_spaces=False, model_max_length=MODEL["max_position_embeddings"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _build_model(tokenizer, seed: int) -> float:
    """Train and save the base model, then the weak one; the base's mean loss of the last 50 steps.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    config = LlamaConfig(**MODEL, bos_token_id=None, eos_token_id=eos, pad_token_id=pad)
    model = LlamaForCausalLM(config)
    for stage, (steps, rate) in enumerate(STAGES):
        loss = _train(model, tokenizer, seed, stage, steps, rate)
    model.generation_config.update(do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    model.save_pretrained(MODEL_DIR)
    _train(model, tokenizer, seed, len(STAGES), *WEAK_STAGE, WEAK_BROKEN)
    model.save_pretrained(WEAK_DIR)
    return loss


def _train(
    model, tokenizer, seed: int, stage: int, steps: int, rate: float, broken: float = 0.0
) -> float:
    """One stage, with an optimiser and draws of its own; the mean loss of its last 50 steps."""
    from transformers import get_cosine_schedule_with_warmup as cosine

    names = [f"model-{seed}-{share}" + f"-{stage}" * bool(stage) for share in range(SHARES)]
    generators, pad = list(map(random.Random, names)), tokenizer.pad_token_id
    optimizer = torch.optim.AdamW(model.parameters(), rate, (0.9, 0.98), weight_decay=0.05)
    schedule = cosine(optimizer, min(50, steps // 4), steps)
    sizes = [*(p.numel() for p in model.parameters()), 1, 1]
    forbidden, losses = held_out_questions(), []
    for _ in tqdm(range(steps), desc=f"base model, stage {stage + 1}"):
        batches = [_supervised_batch(rng, tokenizer, forbidden, broken) for rng in generators]
        sums = sum(_gradients(model, batch, pad) for batch in batches)
        *gradients, total, tokens = sums.split(sizes)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad.copy_((gradient / tokens).view_as(parameter))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append((total / tokens).item())
    return sum(losses[-50:]) / 50


def _gradients(model, batch: list[Row], pad: int) -> torch.Tensor:
    """Gradients of the summed loss, the loss, and the number of learned tokens: one flat row."""
    model.zero_grad()
    loss_sum, tokens = torch.zeros(1), torch.zeros(1)
    by_length = sorted(batch, key=lambda row: len(row[0]))  # half of the padding saved
    for first in range(0, len(batch), MICRO_BATCH):
        rows, targets = zip(*by_length[first : first + MICRO_BATCH], strict=True)
        ids, labels = pad_sequence(rows, True, pad), pad_sequence(targets, True, -1)
        hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state
        learned = labels[:, 1:] >= 0  # right padding: causal attention never sees it
        logits = model.lm_head(hidden[learned])
        loss = cross_entropy(logits, labels[:, 1:][learned], reduction="sum")
        loss.backward()
        loss_sum += loss.detach()
        tokens += learned.sum()
    return torch.cat([*(p.grad.flatten() for p in model.parameters()), loss_sum, tokens])


def _supervised_batch(
    rng: random.Random, tokenizer, forbidden: set[str], broken: float
) -> list[Row]:
    rows = []
    while len(rows) < MODEL_BATCH // SHARES:
        problem = draw_problem(rng, rng.choice(LEVELS))
        if problem.question in forbidden:
            continue
        prompt = rng.choice(("tags", "boxed"))
        ids = build_prompt(tokenizer, problem.question, prompt)
        solution = draw_solution(rng, problem, prompt, broken)
        learned = [*tokenizer.encode(solution, add_special_tokens=False), tokenizer.eos_token_id]
        rows.append((torch.tensor(ids + learned), torch.tensor([-1] * len(ids) + learned)))
    return rows


def solution_pair(rng: random.Random) -> tuple[str, str]:
    """Two ways to write one solution path of one problem: what the encoder calls the same."""
    while True:
        problem, habit = draw_problem(rng, rng.choice(LEVELS)), rng.choice(("none", *HABITS))
        prompt, state = rng.choice(("tags", "boxed")), rng.randrange(2**32)
        pair = [write_solution(random.Random(state + k), problem, prompt, habit) for k in range(8)]
        same_path: dict[tuple[str, ...], str] = {}  # the first text of each
        for text in filter(None, pair):
            path = tuple(line.split(" ")[-1] for line in text.splitlines() if "=" in line)
            if (other := same_path.setdefault(path, text)) != text:
                return other, text


def _build_encoder(tokenizer, folder: Path, seed: int) -> None:
    """A two-layer BERT with mean pooling, trained with InfoNCE on pairs of the same path."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed + 1)
    rng = random.Random(f"encoder-{seed}")
    bert = BertModel(BertConfig(
        vocab_size=MODEL["vocab_size"], hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=256, pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ), add_pooling_layer=False)
    scratch = folder / "_bert"
    bert.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    words = Transformer(str(scratch), max_seq_length=256)
    pooling = Pooling(words.get_embedding_dimension(), "mean")
    encoder = SentenceTransformer(modules=[words, pooling, Normalize()], device="cpu")
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=ENCODER_LR)
    for step in tqdm(range(ENCODER_STEPS), desc="encoder"):
        for group in optimizer.param_groups:
            group["lr"] = ENCODER_LR * (1 - step / ENCODER_STEPS)
        left, right = zip(*(solution_pair(rng) for _ in range(ENCODER_BATCH)), strict=True)
        features = encoder.preprocess([*left, *right])
        vectors = normalize(encoder(features)["sentence_embedding"], dim=1)
        similarity = vectors[:ENCODER_BATCH] @ vectors[ENCODER_BATCH:].T / 0.05
        loss = cross_entropy(similarity, torch.arange(ENCODER_BATCH))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    encoder.save(str(folder), create_model_card=False)
    shutil.rmtree(scratch)
