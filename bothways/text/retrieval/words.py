"""Word search: texts as stemmed words, and BM25 over inverted lists (Robertson 1994; the idf of Lucene);
and the sentence and the words of a passage that match a query.

Letters: N passages (slots). An inverted list is the slots that contain a term, and how often each does.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from sentencex import get_sentence_boundaries

from bothways.search.spaces import VectorModel
from bothways.settings.base import LANGUAGES

WORDS_VERSION = 4  # of how files are read and become terms; an index of another one is made anew
# Where the marks that belong to a letter are: vowels of Hindi, Tamil or Thai, accents in the names of macOS.
MARK_BLOCKS = ((0x300, 0x3100), (0xA600, 0xAC00), (0xFB00, 0xFE30), (0x10000, 0x12000), (0x13000, 0x13500),
               (0x16000, 0x17000), (0x1B000, 0x1F000), (0xE0100, 0xE01F0))  # fmt: skip
# Characters within a word that show nothing: soft hyphen, joiners, variants of a letter.
INVISIBLE = "\u00ad\u034f\u180b-\u180f\u200c\u200d\u2060\ufe00-\ufe0f\U000e0100-\U000e01ef"
UNSEEN = re.compile(f"[{INVISIBLE}]+")
ASCII_WORD = re.compile(r"[^\W_]+")
WORD_SHARES = "word_shares.txt"  # written by tools/make_word_shares.py
ENOUGH_PASSAGES = 1000  # of an index, to tell from them alone how usual a word is
K1, B = 1.5, 0.75  # saturation of counts, and how much the length of a passage matters
LONGEST_TERM = 64  # characters; longer ones are data, not words
# Snowball's names of the languages; texts in others are not stemmed.
STEMMERS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "fi": "finnish", "fr": "french", "hi": "hindi", "hy": "armenian", "it": "italian", "nl": "dutch", "pl": "polish",
    "pt": "portuguese", "ru": "russian", "ta": "tamil",
}  # fmt: skip
# Function words of English that no query is about. In other languages their low idf has to do.
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
Span = tuple[int, int]
BLOCK = re.compile(r"^[^\S\n]*#.*|\S(?:.|\n(?!\s*\n|\s*#))*", re.MULTILINE)  # a heading, or a paragraph


class Analyzer:
    """Splits texts into terms: lower-case words, without stop words, stemmed. Stems are cached."""

    def __init__(self, language: str = "en") -> None:
        import Stemmer

        assert language in LANGUAGES
        name = STEMMERS.get(language)
        self.language = language
        self.stop_words = STOP_WORDS if language == "en" else frozenset[str]()
        self.stemmer = Stemmer.Stemmer(name) if name else None
        self.stems: dict[str, str] = {}

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order."""
        text = text.lower()
        words = word_pattern(text).findall(text)
        stems = self.stems
        for word in words:
            if word not in stems:
                stems[word] = self._stem(word)
        return [stem for word in words if (stem := stems[word])]

    def passage_terms(self, text: str, heading: str) -> list[str]:
        """The terms of a passage: those of its heading, if it does not begin with it, and those of its text."""
        terms, above = self.terms(text), self.terms(heading)
        begins_with_heading = terms[: len(above)] == above
        return terms if begins_with_heading else [*above, *terms]

    def _stem(self, word: str) -> str:
        """ "" for a stop word."""
        term = normal_word(word)[:LONGEST_TERM]
        if term in self.stop_words:
            return ""
        return term if self.stemmer is None else str(self.stemmer.stemWord(term))


def word_pattern(text: str) -> re.Pattern[str]:
    """The pattern of the words of a text. That of ASCII needs no table of marks."""
    return ASCII_WORD if text.isascii() else _unicode_word()


@cache
def _unicode_word() -> re.Pattern[str]:
    return re.compile(rf"[^\W_](?:[^\W_]+|[{marks()}{INVISIBLE}]+)*")


def marks() -> str:
    """The marks of this Python's version of Unicode."""
    chars = (char for block in MARK_BLOCKS for char in map(chr, range(*block)))
    return "".join(char for char in chars if unicodedata.category(char) in ("Mn", "Mc"))


def normal_word(word: str) -> str:
    """A word in lower case and Unicode's form NFKC, in which a letter with marks has one spelling, without invisible
    characters."""
    composed = unicodedata.normalize("NFKC", UNSEEN.sub("", word)).lower()
    return composed if composed.isascii() else unicodedata.normalize("NFKC", composed)


@cache
def background_shares(language: str) -> Mapping[str, float]:
    """The share of passages of other texts that have a term, 0..1, of terms that at least 2 in 1,000 have. Empty for
    languages other than English."""
    if language != "en":
        return {}

    lines = files("bothways.search").joinpath(WORD_SHARES).read_text(encoding="utf-8").splitlines()
    rows = [line.split(" ") for line in lines]
    return {term: int(share) / 1000 for share, term in rows}


@dataclass(frozen=True)
class InvertedList:
    """The passages that contain a term. slots: uint32, ascending. counts: uint8, of the term in each; at most 255."""

    slots: np.ndarray
    counts: np.ndarray


def invert(documents: Sequence[Sequence[str]], first_slot: int = 0) -> tuple[dict[str, InvertedList], np.ndarray]:
    """The inverted list of each term, and the number of terms of each passage, uint32 [N]. documents: the terms of
    each passage; that of the first has the slot `first_slot`."""
    ids: dict[str, int] = {}
    terms: list[int] = []
    counts: list[int] = []
    sizes = np.empty(len(documents), np.int64)  # distinct terms of each passage
    for row, document in enumerate(documents):
        counted = Counter(document)
        sizes[row] = len(counted)
        terms += [ids.setdefault(term, len(ids)) for term in counted]
        counts += counted.values()
    slots = np.repeat(np.arange(first_slot, first_slot + len(documents), dtype=np.uint32), sizes)
    order = np.argsort(np.array(terms, np.int64), kind="stable")
    bounds = np.cumsum(np.bincount(np.array(terms, np.int64), minlength=len(ids)))[:-1]
    slots_by_term = np.split(slots[order], bounds)
    counts_by_term = np.split(np.minimum(np.array(counts, np.int64), 255).astype(np.uint8)[order], bounds)
    lists = {term: InvertedList(slots_by_term[index], counts_by_term[index]) for term, index in ids.items()}
    return lists, np.fromiter(map(len, documents), np.uint32, len(documents))


class Bm25:
    """BM25 scores of all passages for the terms of a query.

    lengths_N: number of terms of each passage. alive_N: which passages exist; the others count for nothing. shares:
    the share of passages of other texts that have a term; terms that it lacks are in none of them.

    Five passages do not tell how usual a word is. So fewer than ENOUGH_PASSAGES are weighed as if they stood among
    others, up to that number, which have each term as often as `shares` says.
    """

    def __init__(self, lengths_N: np.ndarray, alive_N: np.ndarray, shares: Mapping[str, float] | None = None) -> None:
        self.alive_N, self.number = alive_N, int(alive_N.sum())
        self.shares = shares or {}
        self.others = max(0, ENOUGH_PASSAGES - self.number) if shares else 0
        mean = float(lengths_N[alive_N].mean(dtype=np.float64)) if self.number else 0.0
        self.norm_N = (K1 * (1 - B + B * lengths_N / (mean or 1.0))).astype(np.float32)
        self.all_alive = self.number == len(alive_N)

    def scores(self, terms: Iterable[str], lists: Mapping[str, Sequence[InvertedList]]) -> np.ndarray:
        """float32 [N], 0 for passages without any of the terms. lists: the inverted lists of each term, of disjoint
        passages."""
        scores_N = np.zeros(len(self.norm_N), np.float32)
        for term, repeats in Counter(terms).items():
            parts = self.living(lists.get(term, ()))
            weight = np.float32(repeats * self.idf(term, parts))
            for part in parts:
                counts = part.counts.astype(np.float32)
                scores_N[part.slots] += weight * counts / (counts + self.norm_N[part.slots])
        return scores_N

    def idf(self, term: str, living: Sequence[InvertedList]) -> float:
        """The weight of a term: the rarer it is, the greater. living: its inverted lists, of passages that exist."""
        frequency = sum(len(part.slots) for part in living) + self.others * self.shares.get(term, 0.0)
        passages = self.number + self.others
        return math.log(1 + (passages - frequency + 0.5) / (frequency + 0.5))

    def living(self, parts: Sequence[InvertedList]) -> Sequence[InvertedList]:
        """Inverted lists without the passages that do not exist any more."""
        if self.all_alive:
            return parts
        keep = [self.alive_N[part.slots] for part in parts]
        return [InvertedList(part.slots[one], part.counts[one]) for part, one in zip(parts, keep, strict=True)]


def matching_sentence(text: str, query: str, analyzer: Analyzer, static: VectorModel) -> Span:
    """The characters of the sentence that is nearest to the query: by the share of its terms that it contains, and the
    cosine of their vectors."""
    spans = sentence_spans(text, analyzer.language)
    spans = [span for span in spans if not text[span[0] :].startswith("#")] or spans  # headings say too little
    if len(spans) < 2:
        return spans[0] if spans else (0, len(text))
    sentences = [text[start:end] for start, end in spans]
    wanted = set(analyzer.terms(query))
    query_H, *vectors = static.embed([query, *sentences])
    shares = [len(wanted.intersection(analyzer.terms(sentence))) / (len(wanted) or 1) for sentence in sentences]
    scores = [share + float(vector @ query_H) for share, vector in zip(shares, vectors, strict=True)]
    return spans[scores.index(max(scores))]


def sentence_spans(text: str, language: str) -> list[Span]:
    """The characters of each sentence. A blank line and a heading end one too."""
    spans = []
    for block in BLOCK.finditer(text):
        for sentence in get_sentence_boundaries(language, block[0]):
            part = block[0][sentence["start_index"] : sentence["end_index"]]
            if part.strip():
                first = block.start() + sentence["start_index"] + len(part) - len(part.lstrip())
                spans.append((first, first + len(part.strip())))
    return spans


def matching_words(text: str, query: str, analyzer: Analyzer) -> list[Span]:
    """The characters of the words of a text that have a stem of the query."""
    wanted = set(analyzer.terms(query))
    return [
        match.span() for match in word_pattern(text).finditer(text) if wanted.intersection(analyzer.terms(match[0]))
    ]
