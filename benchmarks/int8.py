"""int8 against bf16: one linear layer of MiniLM-L6 and of BERT-Base in every available library, then the whole model.

    python -m benchmarks.int8 [--repeats 7] [--tokens 512 4096] [--model DIR --texts FILE]

First table: milliseconds of x W^T + b for [T, I] inputs, rounding to 8 bits included: `ours` (fixed scales, oneDNN's
kernel called from torch), torch's _int_mm with per-row scales computed on the fly, torch's deprecated
quantize_dynamic, torchao's int8_dynamic_activation_int8_weight, ONNX Runtime's dynamic int8. Second table: the
output of `bothways quantize` for MiniLM-L6 on paragraphs of Wikipedia. One process, interleaved, medians. torchao
and ONNX Runtime are included if they are installed; torchao's own kernels are for GPUs, on a CPU it calls torch's.
"""

import argparse
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow.parquet
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.finetune_scores import minilm
from bothways.model.int8_training import int8_linear
from bothways.settings import Quantize
from bothways.shrink import quantize

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
SIZES = {"MiniLM-L6": (384, 1536), "BERT-Base": (768, 3072)}
PARAGRAPHS = 2000
Call = Callable[[], object]


def shapes(hidden: int, inner: int) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of each product in a layer."""
    return {
        "qkv": (hidden, 3 * hidden),
        "attention out": (hidden, hidden),
        "inner": (hidden, inner),
        "output": (inner, hidden),
    }


def forms(linear: nn.Linear, x_TI: Tensor) -> dict[str, Call]:
    """The same layer in every form, with bf16 input and output if the form supports it."""
    half, small = x_TI.bfloat16(), int8_linear(linear, x_TI.amin(0), x_TI.amax(0), 0.7)
    weight, bias = linear.weight.bfloat16(), linear.bias.bfloat16()
    integers_OI, scale_O = small.weight_int8, small.weight_scale
    calls: dict[str, Call] = {
        "bf16": lambda: F.linear(half, weight, bias),
        "ours": lambda: small(half),
        "_int_mm": partial(by_rows, half, integers_OI.t().contiguous(), scale_O, bias),
        "quantize_dynamic": partial(torch.ao.quantization.quantize_dynamic(nn.Sequential(linear)), x_TI),
    }
    for make in (torchao_form, onnx_form):
        try:
            calls |= make(linear, x_TI)
        except ImportError:
            continue
    return calls


def by_rows(x_TI: Tensor, integers_IO: Tensor, scale_O: Tensor, bias_O: Tensor) -> Tensor:
    """_int_mm with one scale per row, computed from the inputs."""
    scale_T1 = x_TI.abs().amax(1, keepdim=True).float() / 127
    integers_TI = (x_TI.float() / scale_T1).round_().to(torch.int8)
    return (torch._int_mm(integers_TI, integers_IO) * (scale_T1 * scale_O)).bfloat16() + bias_O


def torchao_form(linear: nn.Linear, x_TI: Tensor) -> dict[str, Call]:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = nn.Sequential(nn.Linear(linear.in_features, linear.out_features)).bfloat16()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return {"torchao": partial(model, x_TI.bfloat16())}


def onnx_form(linear: nn.Linear, x_TI: Tensor) -> dict[str, Call]:
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as directory:
        file, small = Path(directory, "float.onnx"), Path(directory, "int8.onnx")
        torch.onnx.export(linear, (x_TI,), str(file), dynamo=False, input_names=["x"], dynamic_axes={"x": [0]})
        model = onnx.load(file)
        del model.graph.value_info[:]
        quantize_dynamic(model, small, per_channel=True, weight_type=QuantType.QInt8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(small.read_bytes(), options, providers=["CPUExecutionProvider"])
    return {"ONNX Runtime": partial(session.run, None, {"x": x_TI.numpy()})}


def milliseconds(calls: dict[str, Call], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: median(calls_ms) for name, calls_ms in times.items()}


def layers(tokens: list[int], repeats: int) -> None:
    for model, (hidden, inner) in SIZES.items():
        for layer, (num_inputs, num_outputs) in shapes(hidden, inner).items():
            for number in tokens:
                torch.manual_seed(0)
                linear = nn.Linear(num_inputs, num_outputs).requires_grad_(False)
                with torch.inference_mode():
                    times = milliseconds(forms(linear, torch.randn(number, num_inputs)), repeats)
                row = "  ".join(f"{name} {value:7.2f}" for name, value in times.items())
                print(
                    f"{model:10} {layer:14} T={number:<5} {row}  bf16/ours {times['bf16'] / times['ours']:.2f}",
                    flush=True,
                )


def measure_model(model: Path, texts: Path | None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = texts or paragraphs(Path(directory, "texts.txt"))
        settings = Quantize(model=model, texts=file, out=Path(directory, "int8"), max_drop=100.0)
        result = quantize.run(settings)
        print(*result.lines()[:-1], sep="\n")
        after = result.best
        before = [one for one in result.measured if "int8" not in one.name][-1]
        print(f"int8 / {before.name}: {after.speed / before.speed:.2f} of its texts/s")


def paragraphs(file: Path) -> Path:
    """Write paragraphs of Wikipedia's held-out articles, of all lengths."""
    table = pyarrow.parquet.read_table(next((DATA / "wikipedia-2015-en").glob("validation*.parquet")))
    lines = [line for text in table["text"].to_pylist() for line in text.splitlines() if line.strip()]
    step = max(1, len(lines) // PARAGRAPHS)
    file.write_text("\n".join(lines[::step][:PARAGRAPHS]) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tokens", type=int, nargs="*", default=[512, 4096])
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--texts", type=Path, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # deprecation warnings of the other libraries
    logging.disable(logging.WARNING)
    layers(options.tokens, options.repeats)
    measure_model(options.model or minilm(), options.texts)


if __name__ == "__main__":
    main()
