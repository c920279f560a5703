"""Whether a new vocabulary keeps accents: the effect of stripping them, measured on the words of a text.

BERT's lower-casing also strips marks: "café" becomes "cafe", which hardly matters in English, but "wurde" and "würde"
become one word, as do फल (fruit) and फूल (flower). A new vocabulary keeps marks if stripping would merge words, or if
there are many.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from unicodedata import normalize

from bothways.base.errors import flag
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.characters import decompose_text, is_mark, is_variation_selector

# Marks are kept from these fractions on. English Wikipedia has 0.06 % and 0.05 %; languages that need their marks
# exceed at least one of them (docs/RESULTS.md). Marks are counted as well as merged words, since a short text, or a
# text without spaces (Thai, Lao), rarely contains both words of a pair.
MAX_MERGED = 0.002  # fraction of running words
MAX_MARKED = 0.005  # fraction of letters

STRIP_ACCENTS = Splitter()
KEEP_ACCENTS = Splitter(strip_accents=False)


@dataclass(frozen=True)
class AccentStats:
    """The effect of stripping accents.

    letters, words: totals of the text.
    marks: number of marks that are removed.
    merged: number of words that are merged into a more frequent one.
    example: the most frequent merged word, and the word it is merged into.
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
        action = "kept" if self.are_needed else "stripped"
        opposite = flag("strip_accents", self.are_needed)
        choice = (
            f"lower-case vocabulary ({flag('lowercase', False)}: cased), accents are {action} ({opposite} if that is "
            "wrong)"
        )
        if not self.marks:
            return f"{choice}: the text has none"

        marks = self.marks / max(1, self.letters)
        merged = self.merged / self.words
        pair = ""
        if self.example:
            word, other = (normalize("NFC", word) for word in self.example)
            pair = f" ({word!r} and {other!r})"
        return (
            f"{choice}: {100 * marks:.2f} in 100 letters, and without them {merged:.2%} of the words would become "
            f"another{pair}"
        )


def measure_accents(words: Mapping[str, int]) -> AccentStats:
    """Measure the effect on a text. words: counts of its words as split by KEEP_ACCENTS, in any order."""
    letters = 0
    marks = 0
    forms_by_stripped: dict[str, Counter[str]] = defaultdict(Counter)  # stripped word -> word -> count
    for word, count in words.items():
        if word.isascii():
            letters += count * len(word)
            continue
        decomposed = _decompose(word)
        num_marks = sum(map(is_mark, decomposed))
        letters += count * (len(decomposed) - num_marks)
        marks += count * num_marks
        if num_marks:
            stripped = " ".join(STRIP_ACCENTS(word))
            forms_by_stripped[stripped][decomposed] += count

    merged = 0
    example = None
    max_count = 0  # of the example
    for stripped, forms in sorted(forms_by_stripped.items()):
        forms[stripped] += words.get(stripped, 0)
        by_count = sorted(forms.items(), key=lambda form: (-form[1], form[0]))
        (most_frequent, _), *others = by_count
        merged += sum(count for _, count in others)
        if others and others[0][1] > max_count:
            word, max_count = others[0]
            example = (word, most_frequent)

    return AccentStats(
        letters=letters,
        marks=marks,
        words=sum(words.values()),
        merged=merged,
        example=example,
    )


def _decompose(word: str) -> str:
    """The word decomposed, so that both encodings of é are equal, and without the variation selectors of emoji."""
    return "".join(char for char in decompose_text(word) if not is_variation_selector(char))


def strip_accents_from(words: Mapping[str, int]) -> Counter[str]:
    """Word counts of the same text as split by STRIP_ACCENTS."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        forms = [word] if word.isascii() else STRIP_ACCENTS(word)
        for stripped in forms:
            counts[stripped] += count
    return counts
