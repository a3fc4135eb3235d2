"""How large the models of the profiles are: what costs and layer choices are computed from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Counted from the model's config.json, tied weights once."""

    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    gated: bool = False  # its licence must be accepted on the hub before it can be loaded

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values a token, float32: our sampler keeps the weights' type."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 4


SIZES: dict[str, Size] = {
    "tiny": Size(861_792, 8, 2, 24),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Size(134_515_008, 30, 3, 64),
    "smollm2-gguf": Size(134_515_008, 30, 3, 64),
    "Qwen/Qwen2.5-0.5B-Instruct": Size(494_032_768, 24, 2, 64),
    "tiiuae/Falcon3-1B-Instruct": Size(1_669_408_768, 18, 4, 256),
    "meta-llama/Llama-3.2-1B-Instruct": Size(1_235_814_400, 16, 8, 64, gated=True),
    "Qwen/Qwen3-1.7B": Size(1_720_574_976, 28, 8, 128),
    "Qwen/Qwen3-8B": Size(8_190_735_360, 36, 8, 128),
    "Qwen/Qwen2.5-Math-7B": Size(7_615_616_512, 28, 4, 128),
    # the authors' AI-MO policy, trained from Qwen2.5-0.5B-Instruct
    "neurocoder/Qwen2.5-0.5B-Instruct-MemoryR::"
    "Qwen2.5-0.5B-Open-R1-GRPOmemory_combine-20-2000-0": Size(494_032_768, 24, 2, 64),
}


def short_name(model: str) -> str:
    """``Qwen/Qwen3-8B`` is called ``Qwen3-8B`` in tables, as in the papers."""
    return model.split("::")[0].split("/")[-1]
