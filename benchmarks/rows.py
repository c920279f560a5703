"""The last layer for the tokens that are read, beside the last layer for all tokens: ratios of their times.

    python -m benchmarks.rows

One process, one thread; both sides alternate, each pair of runs gives a ratio. Texts have 20 to 100 tokens, 60 in the
mean: a step of pre-training of the size mini with 30 % of the words masked, and the vectors of first tokens, in float32
and in bf16, of classifiers of 2 layers and of MiniLM-L6's shape.
"""

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bothways.base.device import single_blas_thread
from bothways.inference.backends.forward import Bert
from bothways.model.config import SIZES, EncoderConfig
from bothways.model.losses import forward_losses
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.text.batch import Batch
from bothways.training.pretraining.objectives import PretrainingObjective

ROUNDS = 11
TOKENS = 4096  # of a batch
LENGTHS = (20, 101)  # bounds of the lengths, uniform
MASKED = 0.3
MINILM = SIZES["tiny"].replace(
    num_hidden_layers=6,
    hidden_size=384,
    num_attention_heads=12,
    intermediate_size=1536,
)


class AllRows(PretrainingObjective):
    """The objective without a choice of rows."""

    def rows(self, batch: Batch) -> Tensor | None:
        return None


def main() -> None:
    torch.set_num_threads(1)
    print(f"{processor()}, {torch.__version__}, {ROUNDS} pairs of runs, {TOKENS} tokens a batch")
    for dropout in (0.0, 0.1):
        report(f"pre-training mini, bf16, dropout {dropout}", *training(dropout))

    shapes = {
        "classifier, 2 x 128": SIZES["tiny"],
        "classifier, 2 x 256": SIZES["mini"].replace(num_hidden_layers=2),
        "MiniLM-L6 (6 x 384)": MINILM,
    }
    for name, config in shapes.items():
        for dtype in (torch.float32, torch.bfloat16):
            report(f"{name}, {str(dtype).removeprefix('torch.')}", *inference(config, dtype))
        report(f"{name}, numpy", *numpy_inference(config))


def report(name: str, without: Callable[[], object], with_rows: Callable[[], object]) -> None:
    """Print the median and the quartiles of the ratios of the times."""
    ratios = sorted(pairs_of_times(without, with_rows))
    low, median, high = statistics.quantiles(ratios, n=4)
    print(f"{name:36} {median:.2f} times as fast (quartiles {low:.2f} to {high:.2f})", flush=True)


def pairs_of_times(without: Callable[[], object], with_rows: Callable[[], object]) -> Iterator[float]:
    for number in range(ROUNDS + 2):
        seconds: dict[Callable[[], object], float] = {}
        # Each comes first as often as second.
        for run in (without, with_rows) if number % 2 else (with_rows, without):
            start = time.perf_counter()
            run()
            seconds[run] = time.perf_counter() - start
        if number >= 2:
            yield seconds[without] / seconds[with_rows]


def training(dropout: float) -> tuple[Callable[[], object], Callable[[], object]]:
    """A forward and a backward pass in bf16, with the head of masked words."""
    config = SIZES["mini"].replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = Model(config, {"masked_words": 0}).train().bfloat16()
    batch = batch_of(config)

    def step(objective: PretrainingObjective) -> Callable[[], object]:
        losses = forward_losses(objective)
        return lambda: losses(model, batch)["masked_lm"][0].backward()

    return step(AllRows()), step(PretrainingObjective())


def inference(config: EncoderConfig, dtype: torch.dtype) -> tuple[Callable[[], object], Callable[[], object]]:
    """The vector of each text's first token."""
    encode = prepack(Model(config).eval().to(dtype))
    batch = batch_of(config)

    @torch.inference_mode()
    def run(rows_R: Tensor | None) -> Tensor:
        return encode(batch, rows_R=rows_R)

    return lambda: run(None), lambda: run(batch.first_tokens)


def numpy_inference(config: EncoderConfig) -> tuple[Callable[[], object], Callable[[], object]]:
    """The same in numpy."""
    parameters: dict[str, np.ndarray] = {}
    model = Model(config)
    linears = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    for name, value in model.state_dict().items():
        is_matrix = name.endswith(".weight") and name.removesuffix(".weight") in linears
        array = value.numpy()
        parameters[name] = np.ascontiguousarray(array.T) if is_matrix else array

    class Words:
        def rows(self, ids_T: np.ndarray) -> np.ndarray:
            return parameters["encoder.embeddings.words.weight"][ids_T]

    bert = Bert(config, parameters, Words())
    batch = batch_of(config)
    tokens = batch.input_ids.numpy(), batch.segment_ids.numpy(), batch.lengths.tolist()
    first_N = batch.first_tokens.numpy()

    def run(rows_R: np.ndarray | None) -> np.ndarray:
        with single_blas_thread():
            return bert(*tokens, rows_R)

    return lambda: run(None), lambda: run(first_N)


def batch_of(config: EncoderConfig) -> Batch:
    """Texts of random words, sorted by length as batches are."""
    generator = np.random.default_rng(0)
    lengths = np.sort(generator.integers(*LENGTHS, size=TOKENS * 2 // sum(LENGTHS)))
    ids = generator.integers(1000, config.vocab_size, lengths.sum())
    batch = Batch.from_arrays(ids, np.zeros_like(ids), lengths)

    is_masked_T = generator.random(len(ids)) < MASKED
    is_masked_T[batch.first_tokens.numpy()] = False
    masked_M = torch.from_numpy(np.flatnonzero(is_masked_T))
    return replace(
        batch,
        masked_positions=masked_M,
        masked_labels=batch.input_ids[masked_M],
        labels=torch.full((len(lengths),), -100),
    )


def processor() -> str:
    """The name that the kernel has for the processor."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return platform.processor()
    models = [line for line in file.read_text().splitlines() if line.startswith("model name")]
    return ", ".join(sorted({line.partition(":")[2].strip() for line in models}))


if __name__ == "__main__":
    main()
