"""Texts as terms: lower-case words without stop words, stemmed; and how usual each term is in other texts."""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from bothways.settings.base import LANGUAGES

# Raised when files are read, or become terms, in another way: an index of another version is made anew.
WORDS_VERSION = 4
# Code points [first, last) among which are the marks that belong to a letter: vowels of Hindi, Tamil or Thai, accents
# in file names of macOS. `marks` picks the marks from them; a search through all of Unicode would take longer.
MARK_BLOCKS = (
    (0x300, 0x3100),
    (0xA600, 0xAC00),
    (0xFB00, 0xFE30),
    (0x10000, 0x12000),
    (0x13000, 0x13500),
    (0x16000, 0x17000),
    (0x1B000, 0x1F000),
    (0xE0100, 0xE01F0),
)
# Characters within a word that show nothing (soft hyphen, joiners, variants of a letter), as part of a pattern.
INVISIBLE = "\u00ad\u034f\u180b-\u180f\u200c\u200d\u2060\ufe00-\ufe0f\U000e0100-\U000e01ef"
UNSEEN = re.compile(f"[{INVISIBLE}]+")
ASCII_WORD = re.compile(r"[^\W_]+")
WORD_SHARES = "word_shares.txt"  # written by tools/make_word_shares.py
LONGEST_TERM = 64  # characters; longer ones are data, not words
# Snowball's names of the languages; texts in others are not stemmed.
STEMMERS = {
    "ar": "arabic",
    "ca": "catalan",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hi": "hindi",
    "hy": "armenian",
    "it": "italian",
    "nl": "dutch",
    "pl": "polish",
    "pt": "portuguese",
    "ru": "russian",
    "ta": "tamil",
}
# Function words of English that no query is about. In other languages their low idf has to do.
STOP_WORDS = frozenset(
    {
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    }
)


class Analyzer:
    """Splits texts into terms: lower-case words, without stop words, stemmed. Stems are cached.

    language: the language of the texts, a code such as "en".
    """

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

        # The cache holds "" for stop words.
        stems = self.stems
        for word in words:
            if word not in stems:
                stems[word] = self._stem(word)
        return [stem for word in words if (stem := stems[word])]

    def passage_terms(self, text: str, heading: str) -> list[str]:
        """The terms of the heading of a passage, if its text does not begin with them, and the terms of its text."""
        terms = self.terms(text)
        above = self.terms(heading)
        begins_with_heading = terms[: len(above)] == above
        return terms if begins_with_heading else [*above, *terms]

    def _stem(self, word: str) -> str:
        """The term of a word; "" for a stop word."""
        term = normal_word(word)[:LONGEST_TERM]
        if term in self.stop_words:
            return ""
        return term if self.stemmer is None else str(self.stemmer.stemWord(term))


def word_pattern(text: str) -> re.Pattern[str]:
    """The pattern of the words of a text. The pattern for ASCII needs no table of marks."""
    return ASCII_WORD if text.isascii() else _unicode_word()


@cache
def _unicode_word() -> re.Pattern[str]:
    # Marks are no word characters (\w) for `re`.
    return re.compile(rf"[^\W_](?:[^\W_]+|[{marks()}{INVISIBLE}]+)*")


def marks() -> str:
    """The marks of this Python's version of Unicode."""
    chars = (char for block in MARK_BLOCKS for char in map(chr, range(*block)))
    return "".join(char for char in chars if unicodedata.category(char) in ("Mn", "Mc"))


def normal_word(word: str) -> str:
    """A word in lower case and Unicode's form NFKC, without invisible characters.

    In this form a letter with marks has one spelling.
    """
    composed = unicodedata.normalize("NFKC", UNSEEN.sub("", word)).lower()
    # NFKC makes new capitals and .lower() new marks: once more, except for ASCII, which stays as it is.
    return composed if composed.isascii() else unicodedata.normalize("NFKC", composed)


@cache
def background_shares(language: str) -> Mapping[str, float]:
    """How usual terms are in other texts: the share of their passages that have the term, 0..1.

    Only terms that at least 2 passages in 1,000 have are listed. Empty for languages other than English.
    """
    if language != "en":
        return {}

    lines = files("bothways.text.retrieval").joinpath(WORD_SHARES).read_text(encoding="utf-8").splitlines()
    # A line is the number of passages in 1,000, and the term.
    rows = [line.split(" ") for line in lines]
    return {term: int(share) / 1000 for share, term in rows}
