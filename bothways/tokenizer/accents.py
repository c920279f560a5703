"""Whether to strip accents: measures how many words of a text would be merged.

BERT's lower-casing also strips marks: "café" becomes "cafe", which hardly matters in English, but "wurde" and "würde"
become one word, as do फल (fruit) and फूल (flower). Marks are kept if stripping would merge words, or if there are many.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from unicodedata import normalize

from bothways.tokenizer import unicode
from bothways.tokenizer.basic import Splitter

# Marks are kept from these fractions on. English Wikipedia has 0.06 % and 0.05 %; languages that need their marks
# exceed at least one of them (docs/RESULTS.md). Marks are counted as well as merged words, since a short text, or a
# text without spaces (Thai, Lao), rarely contains both words of a pair.
MAX_MERGED = 0.002  # fraction of running words
MAX_MARKED = 0.005  # fraction of letters
STRIP_ACCENTS, KEEP_ACCENTS = Splitter(), Splitter(strip_accents=False)


@dataclass(frozen=True)
class AccentStats:
    """The effect of stripping accents: the number of marks removed, and of words merged into a more frequent one.

    letters, words: totals of the text. example: the most frequent merged word and the word it is merged into.
    """

    letters: int
    marks: int
    words: int
    merged: int
    example: tuple[str, str] | None

    @property
    def are_needed(self) -> bool:
        return self.merged >= MAX_MERGED * self.words or self.marks >= MAX_MARKED * self.letters

    def __str__(self) -> str:
        action, other = ("kept", "--strip-accents") if self.are_needed else ("stripped", "--keep-accents")
        choice = f"lower-case vocabulary (--no-lowercase: cased), accents are {action} ({other} if that is wrong)"
        if not self.marks:
            return f"{choice}: the text has none"
        marks, merged = self.marks / max(1, self.letters), self.merged / self.words
        pair = " ({!r} and {!r})".format(*(normalize("NFC", word) for word in self.example)) if self.example else ""
        return (
            f"{choice}: {100 * marks:.2f} in 100 letters, and without them {merged:.2%} of the words would become "
            f"another{pair}"
        )


def measure_accents(words: Mapping[str, int]) -> AccentStats:
    """Measure the effect on a text. words: counts of its words as split by KEEP_ACCENTS, in any order."""
    letters = marks = 0
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # stripped word -> word -> count
    for word, count in words.items():
        decomposed = word if word.isascii() else _decompose(word)
        num_marks = 0 if word.isascii() else sum(map(unicode.is_mark, decomposed))
        letters += count * (len(decomposed) - num_marks)
        marks += count * num_marks
        if num_marks:
            counts[" ".join(STRIP_ACCENTS(word))][decomposed] += count
    merged, max_count, example = 0, 0, None
    for stripped, forms in sorted(counts.items()):
        forms[stripped] += words.get(stripped, 0)
        (most_frequent, _), *others = sorted(forms.items(), key=lambda form: (-form[1], form[0]))
        merged += sum(count for _, count in others)
        if others and others[0][1] > max_count:
            max_count, example = others[0][1], (others[0][0], most_frequent)
    return AccentStats(letters, marks, sum(words.values()), merged, example)


def _decompose(word: str) -> str:
    """The word decomposed, so that both encodings of é are equal, and without the variation selectors of emoji."""
    return "".join(char for char in unicode.decompose_text(word) if not unicode.is_variation_selector(char))


def strip_accents_from(words: Mapping[str, int]) -> Counter[str]:
    """Word counts of the same text as split by STRIP_ACCENTS."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for stripped in [word] if word.isascii() else STRIP_ACCENTS(word):
            counts[stripped] += count
    return counts
