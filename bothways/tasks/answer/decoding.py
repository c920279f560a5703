"""Answer spans (question answering): labels for training windows, and decoding of scores.

Devlin 2018, sections 4.2 and 4.3: the best span has the highest start + end score; [CLS] scores "no answer", which wins
if it exceeds the best span by more than a threshold chosen on dev. For a passage in several windows, spans are compared
by their raw scores, and the score of "no answer" is the lowest of the windows (google-research/bert, run_squad.py).
Unlike in that code, the search is exact, and each span is scored only by the window in which it is furthest from a cut.

Letters: S rows of a window; P passage tokens in it; L span lengths.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bothways.base.errors import InputError, format_count
from bothways.tasks.offsets import char_span, with_positions
from bothways.tasks.windows import span_bounds
from bothways.text.tokenizer.encoding import Encoding, TokenizedText
from bothways.text.tokenizer.tokenizer import Tokenizer

MAX_ANSWER_TOKENS = 30  # tokens
NUM_CANDIDATES = 20  # spans over which probabilities are normalized
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """A slice of the passage: text == passage[start:end] always holds. "" with start = end = 0 means no answer.

    score: its probability among the best spans (and "no answer", if the model was trained with it).
    """

    text: str
    start: int
    end: int
    score: float

    def to_json(self) -> dict[str, Any]:
        return {"answer": self.text, "start": self.start, "end": self.end, "score": self.score}


class ScoredSpan(NamedTuple):
    """Characters [start, end) of a passage, and the sum of the start and end scores."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Candidates:
    """The best spans of a passage, best first, and the score of "no answer"."""

    passage: str
    spans: tuple[ScoredSpan, ...]
    no_answer: float

    @property
    def margin(self) -> float:
        """The score of "no answer" minus the score of the best span, to be compared with a threshold; infinite without
        spans."""
        if not self.spans:
            return math.inf
        return self.no_answer - self.spans[0].score

    def answers(self, top: int = 1, threshold: float | None = None) -> list[Answer]:
        """The `top` best answers, best first; "" comes first if the margin exceeds the threshold, else never.

        threshold: None for models trained without unanswerable questions, which answer "" only if there are no spans.
        """
        if not self.spans:
            return [empty_answer(1.0)]

        probabilities = self._probabilities(threshold)
        answers: list[Answer] = []
        for (start, end, _), probability in zip(self.spans, probabilities, strict=False):
            answers.append(Answer(self.passage[start:end], start, end, score=probability))
        if threshold is not None and self.margin > threshold:
            answers.insert(0, empty_answer(probabilities[-1]))
        return answers[:top]

    def probability(self, place: tuple[int, int] | None, threshold: float | None) -> float:
        """The probability of an answer, as in `answers`; 0 if it is none of the best spans.

        place: characters [start, end) of the passage; None: of "no answer".
        threshold: see `answers`.
        """
        if not self.spans:
            return 1.0 if place is None else 0.0

        probabilities = self._probabilities(threshold)
        if place is None:
            return probabilities[-1] if threshold is not None else 0.0
        for (start, end, _), probability in zip(self.spans, probabilities, strict=False):
            if (start, end) == place:
                return probability
        return 0.0

    def _probabilities(self, threshold: float | None) -> list[float]:
        """The probability of each span; with a threshold also of "no answer", which is the last."""
        scores = [span.score for span in self.spans]
        if threshold is not None:
            scores.append(self.no_answer)
        powers = np.exp(np.array(scores) - max(scores))
        probabilities: list[float] = (powers / powers.sum()).tolist()
        return probabilities


def empty_answer(score: float) -> Answer:
    return Answer("", 0, 0, score=score)


def probable_answers(answers: Sequence[Answer], min_score: float) -> list[Answer]:
    """The answers whose score is high enough; if there are none, "" with the score of the best one."""
    probable = [answer for answer in answers if answer.score >= min_score]
    return probable or [empty_answer(answers[0].score)]


# --- labels ----------------------------------------------------------------------------------------------------------


def encode_pairs(tokenizer: Tokenizer, questions: Sequence[str], passages: Sequence[str]) -> list[Encoding]:
    """[CLS] question [SEP] passage [SEP] for each question; each distinct passage is encoded once."""
    if len(questions) != len(passages):
        raise InputError(
            f"{format_count(len(questions), 'question')} but {format_count(len(passages), 'passage')}: give one "
            "passage per question"
        )
    encoded = {passage: tokenizer.encode(passage) for passage in dict.fromkeys(passages)}
    pairs = []
    for question, passage in zip(map(tokenizer.encode, questions), passages, strict=True):
        pairs.append(tokenizer.build_encoding(question.ranges + encoded[passage].ranges))
    return pairs


def answer_rows(windows: Sequence[Encoding], answer: tuple[int, int] | None) -> list[tuple[int, int]]:
    """The rows of an answer's first and last token in each window; (0, 0), which is [CLS], if there is no answer or the
    window does not contain all of it (Devlin 2018's code).

    answer: characters [start, end) of the passage; a bound inside a token includes the whole token. InputError if the
    tokenizer drops all of these characters.
    """
    if answer is None:
        return [(0, 0)] * len(windows)
    source, _, _ = windows[0].ranges[-1]
    first_token, last_token = _tokens(with_positions(source), *answer)
    rows: list[tuple[int, int]] = []
    for window in windows:
        _, first, last = window.ranges[-1]
        shift = len(window) - 1 - last  # the passage ends before [SEP]
        is_whole = first <= first_token and last_token < last
        rows.append((first_token + shift, last_token + shift) if is_whole else (0, 0))
    return rows


def _tokens(source: TokenizedText, start: int, end: int) -> tuple[int, int]:
    """The first and last token with a character in [start, end)."""
    first = bisect_right(source.token_spans, start, key=lambda span: span.end)
    last = bisect_left(source.token_spans, end, key=lambda span: span.start) - 1
    if first > last:
        raise InputError(f"the answer {source.text[start:end]!r} at {start} has no characters that BERT reads; drop it")
    return first, last


# --- decoding --------------------------------------------------------------------------------------------------------


def find_candidates(
    windows: Sequence[Encoding],
    scores: Sequence[Scores],
    *,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    num_candidates: int = NUM_CANDIDATES,
) -> Candidates:
    """The best distinct spans of at most max_answer_tokens tokens. scores: start and end, [S, 2] per window."""
    if max_answer_tokens < 1:
        raise InputError(f"max_answer_tokens ({max_answer_tokens}) must be at least 1 token")
    spans: list[tuple[float, int, int]] = []
    for window, scores_S2, bounds in zip(windows, scores, pairwise(span_bounds(windows)), strict=True):
        spans += _best_spans(
            window,
            scores_S2,
            bounds,
            max_length=max_answer_tokens,
            num_spans=num_candidates,
        )
    spans.sort(key=lambda span: (-span[0], *span[1:]))

    source = with_positions(windows[0].ranges[-1][0])
    assert isinstance(source.text, str)
    best: dict[tuple[int, int], ScoredSpan] = {}  # by characters: the byte tokens of one character share them
    for score, first, last in spans:
        start, end = char_span(source, first, last)
        if source.text[start:end].strip():  # some tokenizers have tokens for spaces
            best.setdefault((start, end), ScoredSpan(start, end, score))

    return Candidates(
        passage=source.text,
        spans=tuple(best.values())[:num_candidates],
        no_answer=min(float(scores_S2[0].sum()) for scores_S2 in scores),
    )


def _best_spans(
    window: Encoding, scores_S2: Scores, bounds: tuple[int, int], *, max_length: int, num_spans: int
) -> list[tuple[float, int, int]]:
    """(score, first, last) of the best spans with first + last in [bounds), which this window scores (span_bounds);
    passage tokens, both inclusive."""
    _, first, last = window.ranges[-1]
    if first == last:
        return []
    offset = len(window) - 1 - (last - first)
    start_P, end_P = scores_S2[offset:-1].T

    # Row p, column l: the span that begins at token p and ends l tokens after it.
    max_length = min(max_length, last - first)
    padded_end = np.pad(end_P, (0, max_length - 1), constant_values=-np.inf)
    scores_PL = start_P[:, None] + sliding_window_view(padded_end, max_length)

    tokens_P = np.arange(first, last)
    sums_PL = 2 * tokens_P[:, None] + np.arange(max_length)  # first + last
    is_scored_PL = (bounds[0] <= sums_PL) & (sums_PL < bounds[1])
    scores = np.where(is_scored_PL, scores_PL, -np.inf).ravel()

    best = range(scores.size) if num_spans >= scores.size else np.argpartition(-scores, num_spans)[:num_spans]
    spans: list[tuple[float, int, int]] = []
    for index in map(int, best):
        if np.isfinite(scores[index]):
            start, length = divmod(index, max_length)
            spans.append((float(scores[index]), first + start, first + start + length))
    return spans
