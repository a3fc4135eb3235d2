"""How large the models of the profiles are: what costs and layer choices are computed from."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Size:
    """One line of sizes.toml."""

    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    gated: bool = False

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values a token, float32: our sampler keeps the weights' type."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 4


_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
SIZES = {name: Size(**fields) for name, fields in tomllib.loads(_TEXT).items()}


def short_name(model: str) -> str:
    """``Qwen/Qwen3-8B`` is called ``Qwen3-8B`` in tables, as in the papers."""
    return model.split("::")[0].split("/")[-1]
