"""Texts in, answers out: sorts by length, fills token budgets, windows long texts and merges them, restores the
order."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways import checkpoint
from bothways.batch import Batch
from bothways.checkpoint import Checkpoint, say
from bothways.data.order import by_length, fill_budget
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError
from bothways.model.model import Model
from bothways.tokenizer.tokenizer import Encoding, Tokenizer

Long = Literal["windows", "error", "truncate"]
Pooling = Literal["auto", "mean", "cls", "max"]
Vectors = NDArray[np.float32]
Result = TypeVar("Result")
TOKENS = 4096  # a batch; enough to keep the processor busy, small enough for its caches
MASK = "[MASK]"
NUM_SPECIALS = 2  # [CLS] and [SEP] of one text


@dataclass(frozen=True)
class Fill:
    """One word for a mask: the token, its probability, and the text with it in place."""

    token: str
    score: float
    text: str


@dataclass(frozen=True)
class Prediction:
    """The likeliest label of a text, its probability, and every label's."""

    label: str
    score: float
    scores: dict[str, float]


class Predictor:
    """A model at work. Results do not depend on order, batch or company of the texts.

    Every method that reads texts takes long ("windows": what does not fit is read in overlapping windows; "error": it
    is refused; "truncate": cut, counted in `truncated_texts` and said), window (tokens, specials counted) and overlap
    (text tokens). A window is never longer than what the model reads, and an overlap as long as a window is taken as
    a quarter of it.
    """

    def __init__(self, loaded: Checkpoint, *, dtype: str = "auto", device: str = "auto") -> None:
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.checkpoint = loaded
        # In another number format it is a copy: what is saved are the weights as they were.
        model = loaded.model if self.dtype is torch.float32 else deepcopy(loaded.model)
        self.module: Model = model.to(self.device, self.dtype).eval()
        self.truncated_texts = 0

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights. InputError where the checkpoint has none."""
        if self.checkpoint.tokenizer is None:
            raise InputError(
                "the checkpoint has no tokenizer files; put its tokenizer.json or vocab.txt beside the weights"
            )
        return self.checkpoint.tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        return self.checkpoint.labels

    def save(self, path: str | PathLike[str]) -> None:
        """Write the checkpoint, weights as float32, in the layout transformers loads."""
        checkpoint.save(self.checkpoint, path)

    # --- what it can do -----------------------------------------------------------------------------------------------

    def encode(
        self, texts: Sequence[str], long: Long = "windows", window: int = 512, overlap: int = 128
    ) -> list[Vectors]:
        """Last hidden states, float32 [S, H] a text: one row a token of tokenizer.encode(text), specials included.

        A token of a long text is taken from the window where it stands furthest from where the text was cut.
        """
        windows = self._windows(texts, None, long, window, overlap)
        flat = [part for parts in windows for part in parts]
        rows = iter(
            self._run(flat, lambda hidden_TH, batch: list(hidden_TH.float().cpu().split(batch.lengths.tolist())))
        )
        found = []
        for parts in windows:
            kept = [next(rows)[first:last] for first, last in own_rows(parts)]
            found.append(torch.cat(kept).numpy())
        return found

    def embed(
        self,
        texts: Sequence[str],
        pooling: Pooling = "auto",
        normalize: bool = True,
        long: Long = "windows",
        window: int = 512,
        overlap: int = 128,
    ) -> Vectors:
        """One float32 vector a text, [N, H]. auto: the pooling the checkpoint names, else the mean.

        mean and max go over the text's tokens, each once however many windows hold it; cls is the mean of the windows'.
        """
        kind = (self.checkpoint.pooling or "mean") if pooling == "auto" else pooling
        if kind not in get_args(Pooling):
            raise InputError(f"pooling {kind!r} is not supported; one of {', '.join(get_args(Pooling))} is")
        windows = self._windows(texts, None, long, window, overlap)
        flat = [part for parts in windows for part in parts]
        bounds = [bound for parts in windows for bound in own_rows(parts)]
        pooled = torch.stack(self._run(flat, _pool_rows(kind), bounds)) if flat else torch.zeros(0, self._hidden_size)
        sizes = torch.tensor([last - first if kind == "mean" else 1 for first, last in bounds])
        text_of_window = torch.repeat_interleave(torch.arange(len(windows)), torch.tensor([*map(len, windows)]).long())
        if kind == "max":
            texts_of_rows = text_of_window[:, None].expand_as(pooled)
            vectors = torch.full((len(windows), self._hidden_size), -torch.inf)
            vectors.scatter_reduce_(0, texts_of_rows, pooled, "amax")
        else:
            vectors = torch.zeros(len(windows), self._hidden_size).index_add_(0, text_of_window, pooled)
            vectors /= torch.zeros(len(windows)).index_add_(0, text_of_window, sizes.float())[:, None]
        return (torch.nn.functional.normalize(vectors) if normalize else vectors).numpy()

    def fill(
        self, text: str, top: int = 5, long: Long = "windows", window: int = 512, overlap: int = 128
    ) -> list[list[Fill]]:
        """For each [MASK] of a text, its `top` likeliest words, best first. InputError where there is no mask or no
        head.

        In a long text a mask is read in the window in which it stands most central.
        """
        self._need_head("masked_words", "masked words", "use a model pre-trained with them")
        encoding = self.tokenizer.encode(text, specials=(MASK,))
        masks = [index for index, token in enumerate(encoding.ids) if token == self.tokenizer.mask_id]
        if not masks:
            raise InputError(f"no {MASK} in {_shortened(text)!r}; write {MASK} where a word is to be guessed")
        windows = self.fit_windows([encoding], long, window, overlap)[0]
        hidden = self._run(windows, lambda hidden_TH, batch: list(hidden_TH.split(batch.lengths.tolist())))
        starts = [part.sources[0][1] for part in windows]
        fills = []
        for mask in masks:
            inside = [index for index, part in enumerate(windows) if 0 < mask - starts[index] < len(part) - 1]
            if not inside:
                raise InputError(f"token {mask} is a {MASK} that truncation cut off; use long='windows'")
            best = max(
                inside, key=lambda index: min(mask - starts[index], len(windows[index]) - 1 - mask + starts[index])
            )
            with torch.inference_mode():
                scores = self.module.word_scores(hidden[best][mask - starts[best]][None])[0].float().softmax(-1).cpu()
            values, ids = scores[: len(self.tokenizer)].topk(min(top, len(self.tokenizer)))
            span = encoding.offsets[mask]
            tokens = [self.tokenizer.tokens[index] for index in ids.tolist()]
            fills.append([Fill(t, v, _put(text, span, t)) for t, v in zip(tokens, values.tolist(), strict=True)])
        return fills

    def classify(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        long: Long = "windows",
        window: int = 512,
        overlap: int = 128,
    ) -> list[Prediction]:
        """The likeliest label of each text (or pair). A long text's windows' [CLS] vectors are averaged, then
        classified."""
        self._need_head("classes", "text classes", "fine-tune one: bothways finetune classify")
        if not self.labels:
            raise InputError("the model has one output, for regression; use score")
        probabilities = self._text_scores(texts, pairs, long, window, overlap).softmax(-1).tolist()
        named = [dict(zip(self.labels, row, strict=True)) for row in probabilities]
        return [Prediction(max(row, key=row.__getitem__), max(row.values()), row) for row in named]

    def score(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        long: Long = "windows",
        window: int = 512,
        overlap: int = 128,
    ) -> Vectors:
        """A regression model's number for each text (or pair), [N]."""
        self._need_head("classes", "a score", "fine-tune one")
        if self.module.num_outputs["classes"] != 1:
            raise InputError(f"the model tells {len(self.labels)} classes apart; use classify")
        scores: Vectors = self._text_scores(texts, pairs, long, window, overlap)[:, 0].numpy()
        return scores

    # --- how ----------------------------------------------------------------------------------------------------------

    @property
    def _hidden_size(self) -> int:
        return self.module.config.hidden_size

    def _need_head(self, head: str, what: str, way_out: str) -> None:
        if head not in self.module.num_outputs:
            has = ", ".join(self.module.num_outputs) or "none"
            raise InputError(f"the model has no head for {what} (heads: {has}); {way_out}")

    def _windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, long: Long, window: int, overlap: int
    ) -> list[list[Encoding]]:
        return self.fit_windows(self.tokenizer.encode_many(texts, pairs), long, window, overlap)

    def fit_windows(self, encodings: Sequence[Encoding], long: Long, window: int, overlap: int) -> list[list[Encoding]]:
        """Each encoding as the windows in which the model reads it."""
        if long not in get_args(Long):
            raise InputError(f"long={long!r} is not supported; one of {', '.join(get_args(Long))} is")
        readable = self.module.config.max_position_embeddings
        if window > readable:
            window, overlap = readable, min(overlap, readable // 4)
        if overlap + NUM_SPECIALS >= window:
            overlap = window // 4
        if long != "windows":
            overlap = 0  # nothing slides
        windows = [self.tokenizer.slide(encoding, size=window, overlap=overlap) for encoding in encodings]
        lengths = [len(encoding) for encoding, parts in zip(encodings, windows, strict=True) if len(parts) > 1]
        if lengths and long == "error":
            raise InputError(
                f"{len(lengths)} of {len(windows)} texts are longer than {window} tokens (up to {max(lengths)})"
            )
        if lengths and long == "truncate":
            self.truncated_texts += len(lengths)
            say(
                f"cut {len(lengths)} of {len(windows)} texts to {window} tokens, as asked (the longest had "
                f"{max(lengths)})"
            )
            windows = [parts[:1] for parts in windows]
        return windows

    def _text_scores(
        self, texts: Sequence[str], pairs: Sequence[str] | None, long: Long, window: int, overlap: int
    ) -> Tensor:
        windows = self._windows(texts, pairs, long, window, overlap)
        if not windows:
            return torch.zeros(0, self.module.num_outputs["classes"])
        flat = [part for parts in windows for part in parts]
        first = iter(self._run(flat, lambda hidden_TH, batch: list(hidden_TH[batch.first_tokens])))
        pooled = torch.stack([torch.stack([next(first) for _ in parts]).float().mean(0) for parts in windows])
        with torch.inference_mode():
            return self.module.text_scores("classes", pooled.to(self.dtype)).float().cpu()

    def _run(
        self,
        encodings: Sequence[Encoding],
        reduce: Callable[..., list[Result]],
        *given: Sequence[object],
    ) -> list[Result]:
        """reduce(hidden_TH, batch, ...) for batches of like length, its rows put back into the encodings' order.

        given: further rows, one an encoding, of which reduce gets those of its batch.
        """
        lengths = [len(encoding) for encoding in encodings]
        results: list[tuple[int, Result]] = []
        with torch.inference_mode():
            for rows in fill_budget(by_length(range(len(lengths)), lengths), lengths, TOKENS):
                batch = Batch.of([encodings[row] for row in rows]).to(self.device)
                own = [[values[row] for row in rows] for values in given]
                results += zip(rows, reduce(self.module(batch), batch, *own), strict=True)
        return [result for _, result in sorted(results, key=lambda pair: pair[0])]


def own_rows(windows: Sequence[Encoding]) -> list[tuple[int, int]]:
    """Which rows of each window stand for its text: of what two windows share, the first half from the left one.

    So every token is taken from the window where it stands furthest from a cut; [CLS] from the first, [SEP] from the
    last.
    """
    spans = [window.sources[-1][1:] for window in windows]
    bounds = [0]
    for (_, left_end), (right_start, _) in pairwise(spans):
        bounds.append(right_start + (left_end - right_start + 1) // 2)
    bounds.append(spans[-1][1] + 1)  # [SEP]
    owned = []
    for index, (first, _) in enumerate(spans):
        start = bounds[index] - first + 1 if index else 0
        owned.append((start, bounds[index + 1] - first + 1))
    return owned


def _pool_rows(kind: str) -> Callable[[Tensor, Batch, list[tuple[int, int]]], list[Tensor]]:
    """Sum (mean), maximum or first of the rows [first, last) of each text of a batch, in float32."""

    def pool(hidden_TH: Tensor, batch: Batch, bounds: list[tuple[int, int]]) -> list[Tensor]:
        starts = (batch.lengths.cumsum(0) - batch.lengths).tolist()
        if kind == "cls":
            return list(hidden_TH[starts].float().cpu())
        if kind == "max":
            rows = zip(starts, bounds, strict=True)
            return [hidden_TH[start + first : start + last].float().amax(0).cpu() for start, (first, last) in rows]
        text_T = torch.repeat_interleave(torch.arange(len(batch)), batch.lengths).to(hidden_TH.device)
        first_N, last_N = torch.tensor(bounds, device=hidden_TH.device).T
        own_T = (batch.position_ids >= first_N[text_T]) & (batch.position_ids < last_N[text_T])
        sums = torch.zeros(len(batch), hidden_TH.shape[1], device=hidden_TH.device)
        if not bool(own_T.all()):
            hidden_TH, text_T = hidden_TH[own_T], text_T[own_T]
        return list(sums.index_add_(0, text_T, hidden_TH.float()).cpu())

    return pool


def _put(text: str, span: tuple[int, int], token: str) -> str:
    """The text with a token in place of the mask at span; a continuation closes up to what stands before it."""
    before, after = text[: span[0]], text[span[1] :]
    return before.rstrip() + token[2:] + after if token.startswith("##") else before + token + after


def _shortened(text: str, size: int = 60) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."


def load(path: str | PathLike[str], dtype: str = "auto", device: str = "auto") -> Predictor:
    """A Predictor from a checkpoint directory in the Hugging Face layout, or from a run.

    dtype auto: bf16 where the processor is fast at it, else float32; "float32" is exact.
    """
    return Predictor(checkpoint.load(path), dtype=dtype, device=device)
