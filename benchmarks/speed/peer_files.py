"""Model files of peer runtimes, converted by their own tools: ONNX (fused, int8) and OpenVINO.

Each file is converted once, from transformers' model, so that the peers contain none of this library's code.

Letters: N texts, S tokens of the longest, H hidden.
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Work = Literal["vectors", "classes"]


def onnx(directory: Path, files: Path, work: Work, pooling: str, kind: Literal["fused", "int8"]) -> Path:
    """An ONNX file with attention, norms and activations fused for CPUs. int8: also quantize the weights."""
    fused, int8 = files / "fused.onnx", files / "int8.onnx"
    if not fused.exists():
        with quiet():
            _export(directory, files / "plain.onnx", work, pooling)
            _fuse(directory, files / "plain.onnx", fused)
    if kind == "int8" and not int8.exists():
        with quiet():
            from onnxruntime.quantization import QuantType, quantize_dynamic

            # Fused nodes have no recorded types (1: float). Per channel is more accurate and not slower.
            options = {"DefaultTensorType": 1}
            quantize_dynamic(fused, int8, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)
    return fused if kind == "fused" else int8


def openvino(directory: Path, files: Path, work: Work, pooling: str) -> Path:
    """An OpenVINO file, converted from the torch model with fused attention."""
    file = files / "openvino.xml"
    if not file.exists():
        sys.modules.setdefault("openvino_telemetry", None)  # without it, nothing is sent to anyone
        from openvino import convert_model, save_model

        with quiet():
            module = _wrap_model(directory, work, pooling, attention="sdpa")
            save_model(convert_model(module, example_input=_example()), file, compress_to_fp16=False)
    return file


def _export(directory: Path, file: Path, work: Work, pooling: str) -> None:
    import torch

    # The optimizer can fuse only the graph of the older exporter with eager attention.
    names, axes = ["input_ids", "attention_mask"], {0: "N", 1: "S"}
    torch.onnx.export(
        _wrap_model(directory, work, pooling, attention="eager"),
        _example(),
        str(file),
        dynamo=False,
        opset_version=17,
        input_names=names,
        output_names=["numbers"],
        dynamic_axes={names[0]: axes, names[1]: axes, "numbers": {0: "N"}},
    )


def _fuse(directory: Path, plain: Path, fused: Path) -> None:
    from onnxruntime.transformers import optimizer
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(directory)
    optimized = optimizer.optimize_model(
        str(plain), model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
    )
    optimized.save_model_to_file(str(fused))


def _wrap_model(directory: Path, work: Work, pooling: str, attention: str) -> Any:
    """transformers' model as one module, (ids [N, S], mask [N, S]) -> vectors of length 1 [N, H], or scores [N, C]."""
    import torch
    import transformers

    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kind = transformers.AutoModel if work == "vectors" else transformers.AutoModelForSequenceClassification
            self.model = kind.from_pretrained(directory, dtype=torch.float32, attn_implementation=attention)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            outputs = self.model(input_ids=input_ids, attention_mask=attention_mask)
            if work == "classes":
                scores: torch.Tensor = outputs.logits
                return scores
            hidden_NSH, real_NS1 = outputs.last_hidden_state, attention_mask[:, :, None].to(torch.float32)
            if pooling == "cls":
                pooled_NH = hidden_NSH[:, 0]
            elif pooling == "max":
                pooled_NH = (hidden_NSH + (real_NS1 - 1) * 1e9).amax(1)
            else:
                pooled_NH = (hidden_NSH * real_NS1).sum(1) / real_NS1.sum(1)
            return torch.nn.functional.normalize(pooled_NH)

    return Wrapper().eval()


def _example() -> tuple[Any, Any]:
    """Two texts of different lengths to trace with."""
    import torch

    mask_NS = torch.ones(2, 7, dtype=torch.long)
    mask_NS[1, 5:] = 0
    return torch.ones(2, 7, dtype=torch.long), mask_NS


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the peers' messages and warnings while they load or convert a model."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from transformers.utils import logging as theirs

            theirs.disable_progress_bar()
            yield
    finally:
        logging.disable(before)
