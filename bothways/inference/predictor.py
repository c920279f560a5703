"""Texts in, answers out: sorts by length, fills token budgets, windows long texts and merges them, restores the
order. What is made of vectors and scores: pooling.py, tagging.py, answering.py."""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways.batch import Batch
from bothways.batching import sort_by_length, token_batches
from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.device import choose_device, choose_dtype, release_memory, single_thread
from bothways.errors import InputError, MissingFile, RowsError, shorten
from bothways.inference import answer_decoding, tag_decoding
from bothways.inference.answer_decoding import Answer, Reading
from bothways.inference.pooling import Pooling, pool_rows, pool_windows, pooling_name
from bothways.inference.tag_decoding import Entity, Tagset
from bothways.inference.windows import Long, check_window, fit, lengths_of_long, merge_rows, own_rows, window_of
from bothways.inputs import read_text, read_texts, read_words, whole_number
from bothways.log import logger, muted
from bothways.model.model import Model
from bothways.model.parameters import move
from bothways.model.pooler import reads_apart
from bothways.model.prepacked import prepack
from bothways.tokenizer.tokenizer import MIN_WINDOW_TEXT, Encoding, Tokenizer

Vectors = NDArray[np.float32]
Result = TypeVar("Result")
TOKENS = 4096  # a batch; enough to keep the processor busy, small enough for its caches
TOKENS_A_RELEASE = 1 << 15  # after which memory that was freed goes back to the system
SCORES = 1 << 21  # of classes, in memory at once
WINDOW, OVERLAP = 512, 128  # where neither a caller nor the fine-tuning names any
MASK = "[MASK]"


@dataclass(frozen=True)
class Fill:
    """One word for a mask: the token, its probability, and the text with it in place."""

    token: str
    score: float
    text: str


@dataclass(frozen=True)
class Prediction:
    """The likeliest label of a text, its probability, and every label's (or those of the `top` likeliest).

    labels: that label; of a model that gives a text several or none, those more probable than not.
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...] = ()


class Predictor:
    """A model at work.

    Results do not depend on the order, the batch or the company of the texts. float32: to within 1e-5. bfloat16 on a
    processor with AVX512-BF16: vectors to the bit, probabilities to within 1e-6, measured on all families. Other
    processors and GPUs may sum a product in another order for another batch; in bfloat16 and float16 that can move a
    component of a unit vector by about 0.002 and a probability by about 0.05. Equal texts of one call always have equal
    results, since each is computed once.

    It can be pickled, so it can be sent to processes that are spawned or come from a fork server. A forked process may
    use a model that was loaded before the fork, unless torch has computed with several threads before it (any method
    below does): then it hangs, as all of torch does. Load the model after the fork, or spawn.

    Every method that reads texts takes long ("windows": what does not fit is read in overlapping windows; "error": it
    is refused; "truncate": cut, counted in `truncated_texts` and said; without one windows, or cut where the model was
    fine-tuned on cut texts), window (tokens, specials counted; without one those of the fine-tuning, else 512) and
    overlap (text tokens; as it was fine-tuned, else 128). A window is never longer than what the model reads, and an
    overlap as long as a window is taken as a quarter of it.
    """

    def __init__(
        self, loaded: Checkpoint, *, dtype: str = "auto", device: str = "auto", source: Path | None = None
    ) -> None:
        """source: where the checkpoint was loaded from, if its weights are not float32."""
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.checkpoint, self.source = loaded, source
        # In another number format it is a copy: what is saved are the weights as they were.
        model = loaded.model if source or self.dtype is torch.float32 else deepcopy(loaded.model)
        move(model, self.device, self.dtype)
        self.module: Model = model.eval()
        self._packed: tuple[list[tuple[int, int]], Callable[[Batch], Tensor]] | None = None
        self.truncated_texts, self._said = 0, False
        self.window: int = loaded.settings.get("window") or WINDOW  # where a call names none
        overlap = loaded.settings.get("overlap")
        self.overlap: int = self.window // 4 if overlap is None else overlap
        self.long: Long = "truncate" if loaded.settings.get("long") == "truncate" else "windows"  # as it was fine-tuned
        self.window_pooling = (
            "max" if loaded.settings.get("window_pooling") == "max" else "cls"
        )  # of their first vectors
        self.longest: int = loaded.settings.get("max_answer_tokens") or answer_decoding.LONGEST  # answer, in tokens

    def read_in(self, window: int | None) -> None:
        """Read in windows of so many tokens from now on, where a call names none. InputError if the model cannot."""
        readable = self.module.config.max_position_embeddings
        check_window(window, None)
        if window and window > readable:
            raise InputError(f"window ({window}) must be at most {readable}, which is what the model reads")
        if window and window != self.window:
            self.window, self.overlap = window, OVERLAP

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the model was fine-tuned on pairs; None if it does not say."""
        found: bool | None = self.checkpoint.metadata.get("reads_pairs")
        return found

    def reads_alone(self, text_column: str | None, pair_column: str | None) -> bool:
        """Whether second texts are left out: where a model was fine-tuned on single ones and their column is named."""
        return self.reads_pairs is False and text_column is not None and pair_column is None

    def refuse_other_texts(self, paired: bool, file: object) -> None:
        """InputError where a file has pairs and the model was fine-tuned on single texts, or the reverse."""
        if self.reads_pairs not in (paired, None):
            had, way = ("pairs", "--pair-column") if not paired else ("single texts", "--text-column")
            raise InputError(
                f"{file}: holds {'pairs' if paired else 'single texts'}, and the model was fine-tuned on {had}; say "
                f"what is to be read with {way}"
            )

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
        """Write the checkpoint, weights as float32, in the layout transformers loads.

        A model in another number format has rounded weights, so those it was loaded from are read again. InputError
        where they are gone, or are no longer what these were rounded from: one or the other was changed.
        """
        if self.dtype is torch.float32:
            checkpoint.save(self.checkpoint, path)
            return
        try:
            with muted():
                exact = checkpoint.load(self.source).model if self.source else self.checkpoint.model
        except MissingFile as error:
            raise MissingFile(f"the float32 weights to be saved are gone ({error})") from None
        if not _are_rounded(self.module, exact):
            raise InputError(
                f"the weights in {str(self.dtype).removeprefix('torch.')} are not the rounded ones of "
                f"{self.source or 'the checkpoint'}, since either were changed; load the model with dtype='float32' to "
                "change or save it"
            )
        checkpoint.save(replace(self.checkpoint, model=exact), path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}

    # --- what it can do -----------------------------------------------------------------------------------------------

    def encode(
        self, texts: Sequence[str], long: Long | None = None, window: int | None = None, overlap: int | None = None
    ) -> list[Vectors]:
        """Last hidden states, float32 [S, H] a text: one row a token of tokenizer.encode(text), specials included, that
        is not cut off.

        A token of a long text is taken from the window where it stands furthest from where the text was cut.
        """
        windows = self._windows(texts, None, long, window, overlap)
        return [merge_rows(parts, rows) for parts, rows in self._rows(windows, lambda hidden_TH: hidden_TH)]

    def embed(
        self,
        texts: Sequence[str],
        pooling: Pooling = "auto",
        normalize: bool = True,
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
    ) -> Vectors:
        """One float32 vector a text, [N, H]. auto: the pooling the checkpoint names, else the mean.

        mean and max go over the text's tokens, each once however many windows hold it; cls is the mean of the windows'.
        """
        kind = pooling_name(pooling, self.checkpoint.pooling)
        if kind == "cls" and self.module.config.direction != "both":
            raise InputError("pooling 'cls' has seen nothing in a model that looks one way; 'mean' and 'max' have")
        windows = self._windows(texts, None, long, window, overlap)
        flat = [part for parts in windows for part in parts]
        bounds = [bound for parts in windows for bound in own_rows(parts)]
        pooled = self._run_vectors(flat, pool_rows(kind), bounds)
        vectors = pool_windows(kind, pooled, bounds, [*map(len, windows)])
        return (torch.nn.functional.normalize(vectors, out=vectors) if normalize else vectors).numpy()

    def fill(
        self, text: str, top: int = 5, long: Long | None = None, window: int | None = None, overlap: int | None = None
    ) -> list[list[Fill]]:
        """For each [MASK] of a text, its `top` likeliest words, best first. InputError where there is no mask or no
        head. A model's own mask token (`<mask>` in RoBERTa) does as well.

        In a long text a mask is read in the window in which it stands most central.
        """
        self._need_head("masked_words", "masked words", "use a model pre-trained with them")
        if self.module.config.direction != "both":
            raise InputError("a model that looks one way cannot fill gaps; use one that looks both ways")
        own = self.tokenizer.tokens[self.tokenizer.mask_id]
        text, top = read_text("text", text).replace(MASK, own), whole_number("top", top, 1)
        self.say_what_is_lost()
        encoding = self.tokenizer.encode(text, allow_special=(own,))
        masks = [index for index, token in enumerate(encoding.ids) if token == self.tokenizer.mask_id]
        if not masks:
            raise InputError(f"no {own} in {shorten(text)!r}; write {own} where a word is to be guessed")
        windows = self.fit_windows([encoding], long, window, overlap)[0]
        hidden = self._run(windows, lambda hidden_TH, batch: list(hidden_TH.split(batch.lengths.tolist())))
        starts = [part.ranges[0][1] for part in windows]
        fills = []
        for mask in masks:
            inside = [index for index, part in enumerate(windows) if 0 < mask - starts[index] < len(part) - 1]
            if not inside:
                raise InputError(f"token {mask} is a {own} that truncation cut off; use long='windows'")
            best = max(
                inside, key=lambda index: min(mask - starts[index], len(windows[index]) - 1 - mask + starts[index])
            )
            with torch.inference_mode():
                scores = self.module.word_scores(hidden[best][mask - starts[best]][None])[0].float().softmax(-1).cpu()
            values, ids = scores[: len(self.tokenizer)].topk(min(top, len(self.tokenizer)))
            found = zip(ids.tolist(), values.tolist(), strict=True)
            fills.append([self._fill(text, encoding.offsets[mask], index, value) for index, value in found])
        return fills

    def classify(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
        top: int | None = None,
    ) -> list[Prediction]:
        """The likeliest label of each text (or pair). The vectors of a long text's windows are averaged (or their
        maximum is taken, as the model was fine-tuned), then classified.

        top: how many labels `scores` holds, the likeliest first; without it all of them, which takes about 60 bytes a
        label and text.
        """
        self._need_head("classes", "text classes", "fine-tune one: bothways finetune classify")
        if not self.labels:
            raise InputError("the model has one output, for regression; use score")
        top = None if top is None else min(whole_number("top", top, 1), len(self.labels))
        several, predictions = self.checkpoint.multi_label, []
        for scores_NC in self._text_scores(texts, pairs, long, window, overlap):
            shares_NC = scores_NC.sigmoid() if several else scores_NC.softmax(-1)
            for scores, above_C in zip(self._by_label(shares_NC, top), shares_NC > 0.5, strict=True):
                label = max(scores, key=scores.__getitem__)
                likely = (self.labels[place] for place in above_C.nonzero()[:, 0].tolist()) if several else (label,)
                predictions.append(Prediction(label, scores[label], scores, tuple(likely)))
        return predictions

    def _by_label(self, shares_NC: Tensor, top: int | None) -> Iterator[dict[str, float]]:
        """Each row's probabilities by label: all of them, in the labels' order, or the `top` likeliest, best first."""
        if top is None:
            return (dict(zip(self.labels, row, strict=True)) for row in shares_NC.tolist())
        values, places = (rows.tolist() for rows in shares_NC.topk(top))
        names = ((self.labels[place] for place in row) for row in places)
        return (dict(zip(*row, strict=True)) for row in zip(names, values, strict=True))

    def score(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
    ) -> Vectors:
        """A regression model's number for each text (or pair), [N]."""
        self._need_head("classes", "a score", "fine-tune one")
        if self.module.num_outputs["classes"] != 1:
            raise InputError(f"the model tells {len(self.labels)} classes apart; use classify")
        scores: Vectors = torch.cat([*self._text_scores(texts, pairs, long, window, overlap)])[:, 0].numpy()
        return scores

    def tag(
        self, texts: Sequence[str], long: Long | None = None, window: int | None = None, overlap: int | None = None
    ) -> list[list[Entity]]:
        """The entities of each text, in order: text == source[start:end], always.

        A model with one label a word (parts of speech) gives one for each word, split at punctuation as BERT reads it.
        """
        scored, tagset = self._tag_scores(texts, long, window, overlap), self._tagset
        return [tag_decoding.entities(parts, scores_SC, tagset) for parts, scores_SC in scored]

    def tag_words(
        self,
        words: Sequence[Sequence[str]],
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
    ) -> list[list[str]]:
        """One tag for each given word of each text, as IOB2 or plain: for text that is already split."""
        words = read_words(words)
        scored, tagset = self._tag_scores([*map(tag_decoding.joined, words)], long, window, overlap), self._tagset
        return [
            tag_decoding.word_tags(parts, scores_SC, text, tagset)
            for text, (parts, scores_SC) in zip(words, scored, strict=True)
        ]

    def answer(
        self,
        question: str,
        passage: str,
        top: int = 1,
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
        longest: int | None = None,
    ) -> list[Answer]:
        """The `top` best answers to a question, best first: text == passage[start:end]. longest: tokens at most;
        without it as many as in the fine-tuning, else 30.

        "" (start = end = 0) where there is none: the passage is empty, or the model has learned when to say so.
        """
        return self.answers([question], [passage], top, long, window, overlap, longest)[0]

    def answers(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        top: int = 1,
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
        longest: int | None = None,
    ) -> list[list[Answer]]:
        """`answer` for many questions, each about the passage at its place, in one go."""
        most = max(whole_number("top", top, 1), answer_decoding.NUM_BEST)
        readings = self.read_answers(questions, passages, most, long, window, overlap, longest)
        threshold = self.checkpoint.metadata.get("no_answer_threshold")
        return [reading.answers(top, threshold) for reading in readings]

    def read_answers(
        self,
        questions: Sequence[str],
        passages: Sequence[str],
        most: int = answer_decoding.NUM_BEST,
        long: Long | None = None,
        window: int | None = None,
        overlap: int | None = None,
        longest: int | None = None,
    ) -> list[Reading]:
        """The `most` best spans for each question, and how good "no answer" is: before a threshold decides."""
        self._need_head("spans", "answers", "fine-tune one: bothways finetune answer")
        questions, passages = read_texts("questions", questions), read_texts("passages", passages)
        pairs = answer_decoding.encode_pairs(self.tokenizer, questions, passages)
        windows = self.fit_pairs(pairs, _numbered("question", len(pairs)), long, window, overlap)
        scored = self._rows(windows, partial(self.module.token_scores, "spans"))
        tokens = self.longest if longest is None else whole_number("longest", longest, 1)
        return [answer_decoding.read(parts, rows, longest=tokens, most=most) for parts, rows in scored]

    # --- how ----------------------------------------------------------------------------------------------------------

    def _fill(self, text: str, span: tuple[int, int], index: int, score: float) -> Fill:
        """An entry of the vocabulary in place of the mask at span."""
        filled = self.tokenizer.backend.append_token(text[: span[0]], self.tokenizer.tokens[index])
        return Fill(
            self.tokenizer.decode([index], keep_special=True, clean_up_spaces=False), score, filled + text[span[1] :]
        )

    def say_what_is_lost(self) -> None:
        """Once, where words are guessed without the decoder they were learned with."""
        if self.checkpoint.settings.get("objective") == "enhanced" and not self._said:
            logger.warning(
                "the decoder that knew positions is not saved (--objective enhanced); words are guessed without it"
            )
            self._said = True

    @property
    def _tagset(self) -> Tagset:
        return Tagset.of(self.labels, self.checkpoint.metadata.get("scheme"))

    def _weights(self) -> list[tuple[int, int]]:
        """Names the weights as they are now: where they lie, and how often each was written to; but what is written
        through `data`, or in inference mode, is not counted."""
        weights = self.module.parameters()
        return [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]

    @property
    def _hidden(self) -> Callable[[Batch], Tensor]:
        """What makes the last hidden states of batches, [T, H]: laid out anew where weights have been changed."""
        weights = self._weights() if self.dtype is not torch.float32 else []
        if self._packed is None or self._packed[0] != weights:
            self._packed = weights, prepack(self.module)
        return self._packed[1]

    @property
    def _hidden_size(self) -> int:
        return self.module.config.hidden_size

    def _need_head(self, head: str, what: str, way_out: str) -> None:
        if head not in self.module.num_outputs:
            has = ", ".join(self.module.num_outputs) or "none"
            raise InputError(f"the model has no head for {what} (heads: {has}); {way_out}")

    def _windows(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        long: Long | None,
        window: int | None,
        overlap: int | None,
    ) -> list[list[Encoding]]:
        firsts, seconds = read_texts("texts", texts), None if pairs is None else read_texts("pairs", pairs)
        encodings = self.tokenizer.encode_many(firsts, seconds)
        if pairs is None:
            return self.fit_windows(encodings, long, window, overlap)
        return self.fit_pairs(encodings, _numbered("pair", len(encodings)), long, window, overlap)

    def fit_pairs(
        self, encodings: Sequence[Encoding], where: Sequence[str], long: Long | None, window: int | None = None,
        overlap: int | None = None,
    ) -> list[list[Encoding]]:  # fmt: skip
        """As `fit_windows`; where the first text of a pair needs it, the window is larger. RowsError begins with
        `where`: it leaves too little room for the second in what the model reads."""
        check_window(window, overlap)
        long = long or self.long
        readable = self.module.config.max_position_embeddings
        usual = min(self.window if window is None else window, readable)
        room = 1 if long == "truncate" else MIN_WINDOW_TEXT
        sizes, wrong = [], {}
        for row, encoding in enumerate(encodings):
            try:
                sizes.append(window_of(encoding, usual, readable, room))
            except InputError as error:
                wrong[row] = str(error)
        if wrong:
            first = min(wrong)
            raise RowsError(f"{where[first]}: {wrong[first]}", wrong)
        windows: list[list[Encoding]] = [[]] * len(encodings)
        for size in sorted(set(sizes)):
            rows = [row for row, own in enumerate(sizes) if own == size]
            told = (window, overlap) if size == usual else (size, size // 4)
            try:
                found = self.fit_windows([encodings[row] for row in rows], long, *told)
            except RowsError as error:
                wrong |= {rows[place]: why for place, why in error.rows.items()}
                continue
            for row, parts in zip(rows, found, strict=True):
                windows[row] = parts
        if wrong:
            raise RowsError(f"{len(wrong)} of {len(encodings)} texts are {wrong[min(wrong)]}", wrong)
        return windows

    def fit_windows(
        self, encodings: Sequence[Encoding], long: Long | None, window: int | None = None, overlap: int | None = None
    ) -> list[list[Encoding]]:
        """Each encoding as the windows in which the model reads it. RowsError where long="error" refuses some."""
        check_window(window, overlap)
        how = "asked" if long else "it was fine-tuned"
        long = long or self.long
        readable = self.module.config.max_position_embeddings
        own = self.overlap if window in (None, self.window) else OVERLAP
        window = self.window if window is None else window
        overlap = own if overlap is None else overlap
        windows = fit(self.tokenizer, encodings, readable=readable, long=long, window=window, overlap=overlap)
        if long == "truncate" and (lengths := lengths_of_long(encodings, windows)):
            self.truncated_texts += len(lengths)
            longest_read = max(len(parts[0]) for parts in windows)
            logger.warning(
                f"cut {len(lengths)} of {len(windows)} texts to {longest_read} tokens, as {how} (the longest had "
                f"{max(lengths)})"
            )
            windows = [parts[:1] for parts in windows]
        return windows

    def _text_scores(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        long: Long | None,
        window: int | None,
        overlap: int | None,
    ) -> Iterator[Tensor]:
        """Scores of some texts after the other, float32 [n, C]: so many that no part is large where C is."""
        apart = reads_apart(self.module.config)
        if apart and pairs is None:
            raise InputError("the model compares pairs of texts; give pairs too")
        if apart and len(texts) != len(pairs or ()):
            raise InputError(f"{len(texts)} texts and {len(pairs or ())} pairs; give one for each")
        calls = [(texts, None), (pairs or (), None)] if apart else [(texts, pairs)]
        windows = [one for call in calls for one in self._windows(*call, long, window, overlap)]
        if not windows:
            yield torch.zeros(0, self.module.num_outputs["classes"])
            return
        flat = [part for parts in windows for part in parts]
        first_WH = self._run_vectors(flat, self.module.text_states)
        state_NH = pool_windows(self.window_pooling, first_WH, [(0, 1)] * len(flat), [*map(len, windows)])
        if apart:
            state_NH = state_NH.unflatten(0, (2, -1)).transpose(0, 1)  # [N, 2, H]
        for part_NH in state_NH.split(max(1, SCORES // self.module.num_outputs["classes"])):
            with torch.inference_mode():
                scores_NC = self.module.text_scores("classes", part_NH.to(self.device, self.dtype)).float().cpu()
            yield scores_NC

    def _tag_scores(
        self, texts: Sequence[str], long: Long | None, window: int | None, overlap: int | None
    ) -> list[tuple[list[Encoding], Vectors]]:
        """Each text's windows and its scores, one row a token, [S, C]."""
        self._need_head("tokens", "tags", "fine-tune one: bothways finetune tag")
        windows = self._windows(texts, None, long, window, overlap)
        scored = self._rows(windows, partial(self.module.token_scores, "tokens"))
        return [(parts, merge_rows(parts, rows)) for parts, rows in scored]

    def _rows(
        self, windows: list[list[Encoding]], scores: Callable[[Tensor], Tensor]
    ) -> list[tuple[list[Encoding], list[Vectors]]]:
        """Each text's windows with what `scores` makes of their hidden states, float32, one row a token."""

        def split(hidden_TH: Tensor, batch: Batch) -> list[Tensor]:
            return list(scores(hidden_TH).float().cpu().split(batch.lengths.tolist()))

        rows = iter(self._run([part for parts in windows for part in parts], split))
        return [(parts, [next(rows).numpy() for _ in parts]) for parts in windows]

    def _run(
        self, encodings: Sequence[Encoding], reduce: Callable[..., Iterable[Result]], *columns: Sequence[Hashable]
    ) -> list[Result]:
        """reduce(hidden_TH, batch, ...) for batches of like length, as one list in the encodings' order.

        columns: further values, one for each encoding; reduce gets those of its batch. Encodings that are equal, with
        equal values, are computed once and share the result.
        """
        first_rows = _first_rows(encodings, columns)
        results: dict[int, Result] = {}
        for rows, reduced in self._reduced(encodings, reduce, columns, sorted(set(first_rows))):
            results.update(zip(rows, reduced, strict=True))
        return [results[row] for row in first_rows]

    def _run_vectors(
        self, encodings: Sequence[Encoding], reduce: Callable[..., Iterable[Tensor]], *columns: Sequence[Hashable]
    ) -> Tensor:
        """The same where each result is a vector of the hidden size: float32 [N, H], with no second copy beside it."""
        first_rows = _first_rows(encodings, columns)
        distinct = sorted(set(first_rows))
        vectors_NH = torch.empty(0, self._hidden_size)
        for rows, reduced in self._reduced(encodings, reduce, columns, distinct):
            reduced_nH = torch.stack([*reduced]).float().cpu()
            if not len(vectors_NH):  # the width is known now: that of two halves is not the hidden size
                vectors_NH = torch.empty(len(encodings), reduced_nH.shape[1])
            vectors_NH[rows] = reduced_nH
        return vectors_NH if len(distinct) == len(encodings) else vectors_NH[first_rows]

    def _reduced(
        self,
        encodings: Sequence[Encoding],
        reduce: Callable[..., Iterable[Result]],
        columns: Sequence[Sequence[Hashable]],
        rows: Sequence[int],
    ) -> Iterator[tuple[list[int], Iterable[Result]]]:
        """Batch by batch, the numbers of some of these rows and what reduce makes of them."""
        lengths = [*map(len, encodings)]
        hidden, tokens = self._hidden, 0
        for part in token_batches(sort_by_length(rows, lengths), lengths, TOKENS):
            batch = Batch.from_encodings([encodings[row] for row in part]).to(self.device)
            with torch.inference_mode():
                reduced = reduce(hidden(batch), batch, *([column[row] for row in part] for column in columns))
            yield part, reduced
            tokens += batch.num_tokens
            if tokens >= TOKENS_A_RELEASE:
                release_memory()
                tokens = 0


def _first_rows(encodings: Sequence[Encoding], columns: Sequence[Sequence[Hashable]]) -> list[int]:
    """For each encoding the first row that is equal to it: of the same ids, the same second text, the same values."""
    row_by_key: dict[Hashable, int] = {}
    first_rows = []
    for row, encoding in enumerate(encodings):
        _, first, last = encoding.ranges[-1]
        ids = array("i", encoding.ids).tobytes()
        key = (ids, len(encoding.ranges), last - first, *(column[row] for column in columns))
        first_rows.append(row_by_key.setdefault(key, row))
    return first_rows


def _are_rounded(module: Model, exact: Model) -> bool:
    """Whether a model has the weights of another one, each rounded to its own number format."""
    now, stored = module.state_dict(), exact.state_dict()
    return now.keys() == stored.keys() and all(stored[name].to(value).equal(value) for name, value in now.items())


def _numbered(what: str, number: int) -> list[str]:
    """Names for what was given, for whoever is told what is wrong with one."""
    return [f"{what} {index:,} of {number:,}" for index in range(1, number + 1)]


def load(path: str | PathLike[str], dtype: str = "auto", device: str = "auto") -> Predictor:
    """A Predictor from a checkpoint directory in the Hugging Face layout, or from a run.

    dtype auto: bf16 where the processor is fast at it, else float32; "float32" is exact.
    """
    chosen = choose_dtype(dtype, choose_device(device))
    # Rounded weights are not what is saved: those are read again where they came from.
    source = None if chosen is torch.float32 else Path(path).resolve()
    with single_thread():
        return Predictor(checkpoint.load(path, dtype=chosen), dtype=dtype, device=device, source=source)
