"""Tag decoding (NER): word tags to token labels, and scores to entities with exact offsets.

A pre-split word may be several of BERT's words ("U.S.-based" is six). Its tag is the label of the first token of each
of them, so that plain text is tagged as in training. (Devlin 2018, section 5.3, labels only the first token of the
pre-split word.)

Letters: S tokens of a text, special tokens included; W of BERT's words in it; C labels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import RowError, format_count
from bothways.tasks.offsets import Indices, align_words, bert_words, char_span
from bothways.tasks.windows import own_rows
from bothways.text.data.tags import OUTSIDE, SPAN_TAG, Scheme, Span, spans_to_tags, tags_to_spans
from bothways.text.tokenizer.encoding import Encoding

Scores = NDArray[np.float32]
BIOES_FROM_BILOU = {"L": "E", "U": "S"}


@dataclass(frozen=True)
class Entity:
    """Characters [start, end) of a text with a label. score: the mean probability of its words' labels."""

    label: str
    text: str
    start: int
    end: int
    score: float

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}


@dataclass(frozen=True)
class Tagset:
    """The labels of a tagger. names: one per output of the head.

    plain: labels of single words instead of spans. legal: the model was trained on IOB2, so every span must begin with
    B-.
    """

    names: tuple[str, ...]
    plain: bool
    legal: bool = False

    @staticmethod
    def from_names(names: Sequence[str], scheme: object = None) -> "Tagset":
        """scheme: "iob2" or "plain", as in training; if unknown, names without B- and I- are plain."""
        if scheme in ("iob2", "plain"):
            return Tagset(tuple(names), plain=scheme == "plain", legal=scheme == "iob2")
        return Tagset(tuple(names), plain=not any(name.startswith(("B-", "I-")) for name in names))

    @property
    def scheme(self) -> Scheme:
        """The scheme of decoded tags."""
        return "plain" if self.plain else "iob2"

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The names as IOB2 or BIOES, unless they are plain. BILOU becomes BIOES; a name without a prefix ([PAD], X)
        becomes O."""
        if self.plain:
            return self.names
        return tuple(_as_bioes(name) for name in self.names)

    @cached_property
    def transitions(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scores added for a path's first label [C], and for each pair of consecutive labels [C, C]: minus infinity if
        I-X would follow neither B-X nor I-X, else 0."""
        is_inside_C = np.array([name.startswith("I-") for name in self.names])
        labels = [name[2:] for name in self.names]
        index_by_label = {label: index for index, label in enumerate(dict.fromkeys(labels))}
        label_C = np.array([index_by_label[label] for label in labels])
        illegal_CC = is_inside_C & (label_C != label_C[:, None])
        return np.where(is_inside_C, -np.inf, 0.0), np.where(illegal_CC, -np.inf, 0.0)

    @staticmethod
    def from_tags(tags: Iterable[str], *, plain: bool) -> "Tagset":
        """The tagset of a training set: plain tags as they are; for IOB2 tags O, and B- and I- for each label.

        I- is included even if all entities are single words, because a word may be several of BERT's words.
        """
        distinct = sorted(set(tags))
        if plain:
            return Tagset.from_names(distinct, "plain")
        names = [OUTSIDE]
        for label in sorted({tag[2:] for tag in distinct if tag != OUTSIDE}):
            names += [f"B-{label}", f"I-{label}"]
        return Tagset.from_names(names, "iob2")


# --- training labels --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledWindow:
    """A window, the rows [M] that have a label, and the indices of these labels [M]."""

    window: Encoding
    rows: Indices
    labels: Indices


UNKNOWN = -1  # index of a label that the tagset lacks


def label_windows(
    windows: Sequence[Encoding],
    words: Sequence[str],
    tags: Sequence[str],
    tagset: Tagset,
    *,
    where: str = "a text",
    strict: bool = True,
) -> list[LabelledWindow]:
    """The windows of join_words(words) with their labels; each label counts once, in the window that owns its row.

    The first of BERT's words in an entity X is B-X, the others are I-X; a plain tag
    labels all of them. Words that BERT drops have no label.

    windows: of the text.
    words: of the text.
    tags: IOB2 or plain, one per word.
    tagset: the labels of the tagger.
    where: the location of the text, for messages.
    strict: False: words with a tag that is not in the tagset have no label.

    InputError, beginning with `where`, for an unknown tag or a wrong number of tags.
    """
    if len(words) != len(tags):
        raise RowError(
            where, f"{format_count(len(words), 'word')} but {format_count(len(tags), 'tag')}; give one tag per word"
        )
    bert = bert_words(windows)
    word_W, _ = align_words(words, bert)
    labels_W = _label_words(word_W.tolist(), words, tags, tagset, where=where, strict=strict)

    labelled: list[LabelledWindow] = []
    for window, (low, high) in zip(windows, own_rows(windows), strict=True):
        row_W = bert.first_W + 1 - window.ranges[0][1]
        counts_W = (low <= row_W) & (row_W < high) & (labels_W != UNKNOWN)
        labelled.append(LabelledWindow(window, row_W[counts_W], labels_W[counts_W]))
    return labelled


def _label_words(
    word_W: Sequence[int],
    words: Sequence[str],
    tags: Sequence[str],
    tagset: Tagset,
    *,
    where: str,
    strict: bool,
) -> Indices:
    """The index of the label of each of BERT's words, [W]. word_W: the pre-split word of each."""
    index_by_name = {name: index for index, name in enumerate(tagset.names)}
    starts = _entity_starts(tags)
    labels: list[int] = []
    last_word = -1
    for word in word_W:
        tag = tags[word]
        if tagset.plain or tag == OUTSIDE or tag not in index_by_name:
            name = tag
        elif last_word < starts[word]:
            name = f"B-{tag[2:]}"
        else:
            name = f"I-{tag[2:]}"
        last_word = word

        if name not in index_by_name and strict:
            raise RowError(where, f"tag {tag!r} of {words[word]!r} is unknown; known: {', '.join(tagset.names)}")
        labels.append(index_by_name.get(name, UNKNOWN))
    return np.array(labels, np.int64)


def _entity_starts(tags: Sequence[str]) -> list[int]:
    """For each word, the first word of its entity; the word itself if it does not continue an entity."""
    starts: list[int] = []
    previous = OUTSIDE
    for word, tag in enumerate(tags):
        continues = tag[:2] == "I-" and previous != OUTSIDE and previous[2:] == tag[2:]
        starts.append(starts[-1] if continues else word)
        previous = tag
    return starts


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode_entities(windows: Sequence[Encoding], scores_SC: Scores, tagset: Tagset) -> list[Entity]:
    """The entities of a text from its scores, one row per token. O is never an entity.

    With plain labels each of BERT's words is an entity.
    """
    bert = bert_words(windows)
    text = bert.source.text
    assert isinstance(text, str)
    spans, probability_W = _spans(scores_SC[bert.first_W + 1], tagset)

    entities: list[Entity] = []
    for label, first, last in spans:
        start, end = char_span(bert.source, int(bert.first_W[first]), int(bert.last_W[last - 1]))
        entity = Entity(
            label=label,
            text=text[start:end],
            start=start,
            end=end,
            score=float(probability_W[first:last].mean()),
        )
        entities.append(entity)
    return entities


def decode_word_tags(windows: Sequence[Encoding], scores_SC: Scores, words: Sequence[str], tagset: Tagset) -> list[str]:
    """One tag per pre-split word, IOB2 or plain, from the scores of join_words(words).

    A word has the tag of the first of BERT's words in it. A word that BERT drops is O, unless an entity continues after
    it.
    """
    bert = bert_words(windows)
    word_W, is_first_W = align_words(words, bert)
    bert_spans, _ = _spans(scores_SC[bert.first_W + 1], tagset)

    spans: list[Span] = []
    for label, first, last in bert_spans:
        covered = word_W[first:last][is_first_W[first:last]].tolist()
        if tagset.plain:
            spans += [Span(label, word, word + 1) for word in covered]
        elif covered:  # a span may begin and end inside a word
            spans.append(Span(label, covered[0], covered[-1] + 1))
    return spans_to_tags(spans, len(words), tagset.scheme)


def word_probabilities(windows: Sequence[Encoding], scores_SC: Scores, words: Sequence[str]) -> NDArray[np.float64]:
    """The probability of each label for each pre-split word, [words, C], at the first of BERT's words in it; zeros for
    words that BERT drops."""
    bert = bert_words(windows)
    word_W, is_first_W = align_words(words, bert)
    probabilities_WC = np.exp(_log_probabilities(scores_SC[bert.first_W + 1]))

    probabilities = np.zeros((len(words), scores_SC.shape[1]))
    probabilities[word_W[is_first_W]] = probabilities_WC[is_first_W]
    return probabilities


@dataclass(frozen=True)
class WordLabels:
    """The labels of BERT's words in a text.

    spans: of these words; one for each entity, in the order of the entities.
    starts: the first character of each word in the text.
    labels_W: the index of the label of each word.
    log_WC: the log-probability of each label for each word.
    """

    spans: Sequence[Span]
    starts: Sequence[int]
    labels_W: Indices
    log_WC: NDArray[np.float64]


def word_labels(windows: Sequence[Encoding], scores_SC: Scores, tagset: Tagset) -> WordLabels:
    """The labels of BERT's words in a text, from its scores, one row per token."""
    bert = bert_words(windows)
    labels_W, log_WC = _best_labels(scores_SC[bert.first_W + 1], tagset)
    places = bert.source.token_spans
    return WordLabels(
        spans=_label_spans(labels_W, tagset),
        starts=[places[first].start for first in bert.first_W.tolist()],
        labels_W=labels_W,
        log_WC=log_WC,
    )


def _spans(scores_WC: Scores, tagset: Tagset) -> tuple[list[Span], NDArray[np.float64]]:
    """Spans of BERT's words, and the probability of each word's label, [W]."""
    labels_W, log_WC = _best_labels(scores_WC, tagset)
    probability_W = np.exp(log_WC[np.arange(len(labels_W)), labels_W])
    return _label_spans(labels_W, tagset), probability_W


def _best_labels(scores_WC: Scores, tagset: Tagset) -> tuple[Indices, NDArray[np.float64]]:
    """The label of each word, [W], and the log-probabilities of all labels, [W, C]."""
    log_WC = _log_probabilities(scores_WC)
    labels_W: Indices = viterbi(log_WC, tagset) if tagset.legal else log_WC.argmax(1)
    return labels_W, log_WC


def _label_spans(labels_W: Indices, tagset: Tagset) -> list[Span]:
    return tags_to_spans([tagset.readable[label] for label in labels_W], tagset.scheme)


def _log_probabilities(scores_WC: Scores) -> NDArray[np.float64]:
    exact_WC = scores_WC.astype(np.float64)
    log_WC: NDArray[np.float64] = exact_WC - np.logaddexp.reduce(exact_WC, axis=1, keepdims=True)
    return log_WC


def _as_bioes(name: str) -> str:
    if name[1:2] == "-":
        name = BIOES_FROM_BILOU.get(name[:1], name[:1]) + name[1:]
    return name if SPAN_TAG.fullmatch(name) else OUTSIDE


def viterbi(log_WC: NDArray[np.float64], tagset: Tagset) -> Indices:
    """The most probable sequence of labels in which I-X follows only B-X or I-X (Viterbi 1967), [W].

    If the most probable labels of the words form a legal sequence, that is the result.
    """
    starts_C, steps_CC = tagset.transitions
    labels_W: Indices = log_WC.argmax(1)
    if not len(labels_W):
        return labels_W
    is_legal = starts_C[labels_W[0]] == 0 and not steps_CC[labels_W[:-1], labels_W[1:]].any()
    if is_legal:
        return labels_W

    best_C = starts_C + log_WC[0]
    backpointers: list[Indices] = []
    for log_C in log_WC[1:]:
        reached_CC = best_C[:, None] + steps_CC  # [previous label, label]
        backpointers.append(reached_CC.argmax(0))
        best_C = reached_CC.max(0) + log_C

    path = [int(best_C.argmax())]
    for previous_C in reversed(backpointers):
        path.append(int(previous_C[path[-1]]))
    return np.array(path[::-1])
