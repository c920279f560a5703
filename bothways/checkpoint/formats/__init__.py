"""Formats of weights other than Hugging Face's float tensors, by the model_type of config.json.

A format reads a directory and its config into tensors with Hugging Face's names; `quantization_config` has the
model_type of the family.
"""

from collections.abc import Callable, Mapping

from torch import Tensor

from bothways.checkpoint.formats.packed import PACKED, read_packed

Reader = Callable[..., Mapping[str, Tensor]]  # (directory, hf_config=content of config.json)
FORMATS: dict[str, Reader] = {PACKED: read_packed}
