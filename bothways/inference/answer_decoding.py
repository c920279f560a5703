"""Answers: how an answer becomes rows of windows, and what start and end scores become: exact slices of a passage.

Devlin 2018, sections 4.2 and 4.3: the best span is that with the highest start + end score; [CLS] stands for "no
answer", which is given where it beats the best span by more than a threshold chosen on dev. Of a passage in several
windows, spans are compared by their raw scores, and "no answer" is as good as in the window where it is worst
(google-research/bert, run_squad.py). Unlike there, the search is exact, and a span is read in one window alone: the
one that holds it furthest from a cut.

Letters: S rows of a window; P passage tokens in it; L lengths of spans.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bothways.errors import InputError
from bothways.inference.offsets import characters, traced
from bothways.inference.windows import span_bounds
from bothways.tokenizer.tokenizer import Encoding, TokenizedText, Tokenizer

LONGEST = 30  # tokens of an answer
NUM_BEST = 20  # spans among which probabilities are shared
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """A slice of the passage: text == passage[start:end], always; "" with start = end = 0 where there is none.

    score: its probability among the best spans (and "no answer", in a model that was trained with it).
    """

    text: str
    start: int
    end: int
    score: float


class Found(NamedTuple):
    """The characters [start, end) of a passage, and their score: start + end."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Reading:
    """What a model finds in a passage: the best spans, best first, and how good "no answer" is, as a score."""

    passage: str
    spans: tuple[Found, ...]
    no_answer: float

    @property
    def margin(self) -> float:
        """How far "no answer" is ahead of the best span: what a threshold is compared with. Infinite without spans."""
        return self.no_answer - self.spans[0].score if self.spans else math.inf

    def answers(self, top: int = 1, threshold: float | None = None) -> list[Answer]:
        """The `top` best, best first. Where the margin is above the threshold, "" is first; else it is none of them.

        threshold None: the model was not trained to say "no answer", so it does where there is nothing to point at.
        """
        if not self.spans:
            return [Answer("", 0, 0, 1.0)]
        scores = [*(span.score for span in self.spans), *([] if threshold is None else [self.no_answer])]
        powers = np.exp(np.array(scores) - max(scores))
        shares = (powers / powers.sum()).tolist()
        found = [
            Answer(self.passage[start:end], start, end, share)
            for (start, end, _), share in zip(self.spans, shares, strict=False)
        ]
        if threshold is not None and self.margin > threshold:
            found.insert(0, Answer("", 0, 0, shares[-1]))
        return found[:top]


# --- answers -> rows --------------------------------------------------------------------------------------------------


def encode_pairs(tokenizer: Tokenizer, questions: Sequence[str], passages: Sequence[str]) -> list[Encoding]:
    """[CLS] question [SEP] passage [SEP] each; a passage is encoded once, however many questions ask about it."""
    if isinstance(questions, str) or isinstance(passages, str):
        raise InputError("questions and passages are lists; for one question use answer")
    if len(questions) != len(passages):
        raise InputError(f"{len(questions)} questions but {len(passages)} passages: give one passage a question")
    encoded = {passage: tokenizer.encode(passage) for passage in dict.fromkeys(passages)}
    pairs = []
    for question, passage in zip(map(tokenizer.encode, questions), passages, strict=True):
        pairs.append(tokenizer.build_encoding(question.ranges + encoded[passage].ranges))
    return pairs


def answer_rows(windows: Sequence[Encoding], answer: tuple[int, int] | None) -> list[tuple[int, int]]:
    """The rows at which an answer's first and last token stand in each window; (0, 0), at [CLS], where a window does
    not hold it whole (Devlin 2018's code) or there is none.

    answer: characters [start, end) of the passage; bounds inside a token take all of it. InputError where BERT reads
    none of these characters.
    """
    if answer is None:
        return [(0, 0)] * len(windows)
    first_token, last_token = _tokens(traced(windows[0].ranges[-1][0]), *answer)
    rows = []
    for window in windows:
        _, first, last = window.ranges[-1]
        shift = len(window) - 1 - last  # the passage's last token stands before [SEP]
        is_whole = first <= first_token and last_token < last
        rows.append((first_token + shift, last_token + shift) if is_whole else (0, 0))
    return rows


def _tokens(source: TokenizedText, start: int, end: int) -> tuple[int, int]:
    """The first and last token of which a character is in [start, end)."""
    first = bisect_right(source.token_spans, start, key=lambda place: place.end)
    last = bisect_left(source.token_spans, end, key=lambda place: place.start) - 1
    if first > last:
        raise InputError(f"the answer {source.text[start:end]!r} at {start} holds nothing that BERT reads; drop it")
    return first, last


# --- scores -> answers ------------------------------------------------------------------------------------------------


def read(
    windows: Sequence[Encoding], scores: Sequence[Scores], *, longest: int = LONGEST, most: int = NUM_BEST
) -> Reading:
    """The `most` best different spans of at most `longest` tokens. scores: start and end, [S, 2] a window."""
    if longest < 1:
        raise InputError(f"longest ({longest}) must be at least 1 token")
    source = traced(windows[0].ranges[-1][0])
    assert isinstance(source.text, str)
    bounds = span_bounds(windows)
    spans = []
    for index, (window, scores_S2) in enumerate(zip(windows, scores, strict=True)):
        spans += _best_spans(window, scores_S2, (bounds[index], bounds[index + 1]), longest, most)
    best: dict[tuple[int, int], Found] = {}  # by characters, which the pieces of one character share
    for score, first, last in sorted(spans, key=lambda span: (-span[0], *span[1:])):
        start, end = characters(source, first, last)
        if source.text[start:end].strip():  # spaces can be tokens, but are no answer
            best.setdefault((start, end), Found(start, end, score))
    no_answer = min(float(scores_S2[0].sum()) for scores_S2 in scores)
    return Reading(source.text, tuple(best.values())[:most], no_answer)


def _best_spans(
    window: Encoding, scores_S2: Scores, own: tuple[int, int], longest: int, most: int
) -> list[tuple[float, int, int]]:
    """(score, first, last) of the best spans for which a window speaks; passage tokens, both included."""
    _, first, last = window.ranges[-1]
    if first == last:
        return []
    begins = len(window) - 1 - (last - first)
    start_P, end_P = scores_S2[begins:-1].T
    longest = min(longest, last - first)
    end_PL = sliding_window_view(np.pad(end_P, (0, longest - 1), constant_values=-np.inf), longest)
    tokens_P, lengths_L = np.arange(first, last), np.arange(longest)
    sums_PL = 2 * tokens_P[:, None] + lengths_L  # first + last
    scores_PL = np.where((own[0] <= sums_PL) & (sums_PL < own[1]), start_P[:, None] + end_PL, -np.inf).ravel()
    chosen = np.argpartition(-scores_PL, most)[:most] if most < scores_PL.size else np.arange(scores_PL.size)
    return [
        (float(scores_PL[place]), first + int(place) // longest, first + int(place) // longest + int(place) % longest)
        for place in chosen
        if np.isfinite(scores_PL[place])
    ]
