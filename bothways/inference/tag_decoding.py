"""Tags: how tags of words become labels of tokens, and what scores of tokens become: entities at exact characters.

A given word may be several of BERT's ("U.S.-based" is six). Its tag stands on the first piece of each of them (Devlin
2018, section 5.3, takes the first piece; we label BERT's own words), so that plain text is read as it was trained.

Letters: S tokens of a text, specials included; W of BERT's words in it; C labels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bothways.data.tags import OUTSIDE, SPAN_TAG, Span, spans_to_tags, tags_to_spans
from bothways.errors import InputError
from bothways.inference.offsets import Numbers, bert_words, characters, given_words
from bothways.inference.windows import own_rows
from bothways.tokenizer.tokenizer import Encoding

Scores = NDArray[np.float32]
AS_BIOES = {"L": "E", "U": "S"}  # BILOU's names of the same


@dataclass(frozen=True)
class Entity:
    """A stretch of a text: text == source[start:end], always. score: the mean probability of its words' labels."""

    label: str
    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Tagset:
    """What the labels of a model mean. names: one an output.

    plain: each word has its label for itself. legal: it was trained on IOB2 alone, so a span must begin with B-.
    """

    names: tuple[str, ...]
    plain: bool
    legal: bool = False

    @staticmethod
    def of(names: Sequence[str], scheme: object = None) -> "Tagset":
        """scheme: "iob2" or "plain", as the model was trained; else the names tell: without B- and I- it is plain."""
        if scheme in ("iob2", "plain"):
            return Tagset(tuple(names), plain=scheme == "plain", legal=scheme == "iob2")
        return Tagset(tuple(names), plain=not any(name.startswith(("B-", "I-")) for name in names))

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The names as IOB2 or BIOES, if they are not plain. BILOU becomes BIOES; a name among them without a prefix
        ([PAD], X) is outside."""
        return self.names if self.plain else tuple(_readable(name) for name in self.names)

    @cached_property
    def transitions(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is added to a path's score for its first label [C], and for each step from one label to the next
        [C, C]: minus infinity where I-X would follow neither B-X nor I-X, else 0."""
        is_inside_C = np.array([name.startswith("I-") for name in self.names])
        numbers = {label: number for number, label in enumerate(dict.fromkeys(name[2:] for name in self.names))}
        label_C = np.array([numbers[name[2:]] for name in self.names])
        illegal_CC = is_inside_C & (label_C != label_C[:, None])
        return np.where(is_inside_C, -np.inf, 0.0), np.where(illegal_CC, -np.inf, 0.0)

    @staticmethod
    def learned(tags: Iterable[str], *, plain: bool) -> "Tagset":
        """That of a training set: plain tags as they are; of IOB2 ones O and, for each label, B- and I-.

        I- even where no entity has two words: one of a single word may be several of BERT's.
        """
        seen = sorted(set(tags))
        if plain:
            return Tagset.of(seen, "plain")
        labels = dict.fromkeys(tag[2:] for tag in seen if tag != OUTSIDE)
        return Tagset.of((OUTSIDE, *(prefix + label for label in sorted(labels) for prefix in ("B-", "I-"))), "iob2")


# --- tags -> labels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    """A window and the labels that count in it: the rows [M] at which they stand, and their numbers [M]."""

    window: Encoding
    places: Numbers
    labels: Numbers


UNKNOWN = -1  # number of a label that the tagset lacks


def joined(words: Sequence[str]) -> str:
    """The text of given words: joined by single spaces."""
    return " ".join(words)


def label_windows(
    windows: Sequence[Encoding], words: Sequence[str], tags: Sequence[str], tagset: Tagset, *, where: str = "a text",
    strict: bool = True,
) -> list[Labelled]:  # fmt: skip
    """The windows of joined(words) with their labels. A label counts once: in the window that speaks for its token.

    tags: IOB2 or plain, one a word. The first of BERT's words in an entity X is B-X, the following are I-X; a plain tag
    stands on all of them. A word of which BERT reads nothing has no label, and with strict=False none whose
    tag the tagset does not know. Of several sentences given as one text, each is read with its neighbours.
    InputError begins with `where`: a tag that the tagset does not know, or not one a word.
    """
    if len(words) != len(tags):
        raise InputError(f"{where}: {len(words)} words but {len(tags)} tags; give one tag a word")
    number_by_name = {name: number for number, name in enumerate(tagset.names)}
    read = bert_words(windows)
    labels, begins, last = [], _begins(tags), -1
    for given in given_words(words, read)[0].tolist():
        tag = tags[given]
        name = tag if tagset.plain or tag == OUTSIDE else ("B-" if last < begins[given] else "I-") + tag[2:]
        last = given
        if tag not in number_by_name:
            name = tag
        if name not in number_by_name and strict:
            raise InputError(f"{where}: tag {tag!r} of {words[given]!r} is unknown; known: {', '.join(tagset.names)}")
        labels.append(number_by_name.get(name, UNKNOWN))
    labels_W = np.array(labels, np.int64)
    labelled = []
    for window, (low, high) in zip(windows, own_rows(windows), strict=True):
        row_W = read.first_W + 1 - window.ranges[0][1]
        own_W = (low <= row_W) & (row_W < high) & (labels_W != UNKNOWN)
        labelled.append(Labelled(window, row_W[own_W], labels_W[own_W]))
    return labelled


def _begins(tags: Sequence[str]) -> list[int]:
    """The word at which each word's entity begins, itself where it goes on with none."""
    found: list[int] = []
    for place, tag in enumerate(tags):
        goes_on = place > 0 and tag[:2] == "I-" and tags[place - 1] != OUTSIDE and tags[place - 1][2:] == tag[2:]
        found.append(found[-1] if goes_on else place)
    return found


# --- scores -> tags ---------------------------------------------------------------------------------------------------


def entities(windows: Sequence[Encoding], scores_SC: Scores, tagset: Tagset) -> list[Entity]:
    """What a text's scores say, one row a token: an Entity runs from its first word's start to its last word's end.

    Plain labels give one for each of BERT's words. O is none, in every tagset.
    """
    read = bert_words(windows)
    text = read.source.text
    assert isinstance(text, str)
    found = []
    spans, chosen_W = _spans(scores_SC[read.first_W + 1], tagset)
    for label, first, last in spans:
        start, end = characters(read.source, int(read.first_W[first]), int(read.last_W[last - 1]))
        found.append(Entity(label, text[start:end], start, end, float(chosen_W[first:last].mean())))
    return found


def word_tags(windows: Sequence[Encoding], scores_SC: Scores, words: Sequence[str], tagset: Tagset) -> list[str]:
    """One tag for each of the given words, as IOB2 or plain, from the scores of joined(words).

    A word is what the first of BERT's words in it is. One of which BERT reads nothing is O, unless an entity goes on
    behind it.
    """
    read = bert_words(windows)
    given_W, is_first_W = given_words(words, read)
    spans, _ = _spans(scores_SC[read.first_W + 1], tagset)
    held = []
    for label, first, last in spans:
        given = given_W[first:last][is_first_W[first:last]]
        held += [Span(label, int(word), int(word) + 1) for word in given] if tagset.plain else _run(label, given)
    return spans_to_tags(held, len(words), "plain" if tagset.plain else "iob2")


def word_probabilities(windows: Sequence[Encoding], scores_SC: Scores, words: Sequence[str]) -> NDArray[np.float64]:
    """The probability of each label for each of the given words, at the first of BERT's words in it: [words, C]; 0
    throughout where BERT reads nothing of a word."""
    read = bert_words(windows)
    given_W, is_first_W = given_words(words, read)
    exact_WC = scores_SC[read.first_W + 1].astype(np.float64)
    shares_WC = np.exp(exact_WC - np.logaddexp.reduce(exact_WC, axis=1, keepdims=True))
    found = np.zeros((len(words), scores_SC.shape[1]))
    found[given_W[is_first_W]] = shares_WC[is_first_W]
    return found


def _run(label: str, given: Numbers) -> list[Span]:
    """The given words of one span as a span; what begins and ends inside a word has none."""
    return [Span(label, int(given[0]), int(given[-1]) + 1)] if len(given) else []


def _spans(scores_WC: Scores, tagset: Tagset) -> tuple[list[Span], NDArray[np.float64]]:
    """Spans of BERT's words, and each word's probability of the label it was given, [W]."""
    exact_WC = scores_WC.astype(np.float64)
    log_WC = exact_WC - np.logaddexp.reduce(exact_WC, axis=1, keepdims=True)
    labels_W = legal_path(log_WC, tagset) if tagset.legal else log_WC.argmax(1)
    chosen_W = np.exp(log_WC[np.arange(len(labels_W)), labels_W])
    return tags_to_spans([tagset.readable[label] for label in labels_W], "plain" if tagset.plain else "iob2"), chosen_W


def _readable(name: str) -> str:
    name = AS_BIOES.get(name[:1], name[:1]) + name[1:] if name[1:2] == "-" else name
    return name if SPAN_TAG.fullmatch(name) else OUTSIDE


def legal_path(log_WC: NDArray[np.float64], tagset: Tagset) -> Numbers:
    """The likeliest sequence of labels in which I-X follows only B-X or I-X (Viterbi 1967), [W].

    Where the likeliest labels, each for itself, are legal, they are that sequence.
    """
    starts_C, steps_CC = tagset.transitions
    labels_W: Numbers = log_WC.argmax(1)
    if not len(labels_W) or (starts_C[labels_W[0]] == 0 and not steps_CC[labels_W[:-1], labels_W[1:]].any()):
        return labels_W
    best_C, befores = starts_C + log_WC[0], []
    for log_C in log_WC[1:]:
        reached_CC = best_C[:, None] + steps_CC  # [label before, label]
        befores.append(reached_CC.argmax(0))
        best_C = reached_CC.max(0) + log_C
    path = [int(best_C.argmax())]
    for before_C in reversed(befores):
        path.append(int(before_C[path[-1]]))
    return np.array(path[::-1])
