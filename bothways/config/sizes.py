"""Model sizes by name, tiny to large (Turc 2019, table 1; Devlin 2018, section 3)."""

from bothways.config import EncoderConfig


def _size(layers: int, hidden: int, heads: int) -> EncoderConfig:
    return EncoderConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
    )


SIZES = {
    "tiny": _size(2, 128, 2),
    "mini": _size(4, 256, 4),
    "small": _size(4, 512, 8),
    "medium": _size(8, 512, 8),
    "base": _size(12, 768, 12),
    "large": _size(24, 1024, 16),
}
