"""Whether a text needs its accents and vowel signs, measured on its words.

BERT's lower-casing also strips marks: "café" becomes "cafe", which costs English little, but "wurde" and "würde" become
one word, and so do फल (fruit) and फूल (flower). Marks stay where stripping would merge words, or where they are many.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from unicodedata import normalize

from bothways.tokenizer import unicode
from bothways.tokenizer.basic import Splitter

# Marks are kept from these shares on. English Wikipedia has 0.06 % and 0.05 %; languages that need their marks have
# more of one or the other (docs/RESULTS.md). Marks count beside words, since a short text, or one without spaces (Thai,
# Lao), seldom has both words of a pair.
MERGED = 0.002  # of running words
MARKED = 0.005  # of letters
STRIP_ACCENTS, KEEP_ACCENTS = Splitter(), Splitter(strip_accents=False)


@dataclass(frozen=True)
class AccentStats:
    """What stripping would do to a text: marks deleted of all letters, words that become another, commoner one.

    example: the word that this happens to most often, and what it becomes one with.
    """

    letters: int
    marks: int
    words: int
    merged: int
    example: tuple[str, str] | None

    @property
    def are_needed(self) -> bool:
        return self.merged >= MERGED * self.words or self.marks >= MARKED * self.letters

    def __str__(self) -> str:
        done, other = ("kept", "--strip-accents") if self.are_needed else ("stripped", "--keep-accents")
        choice = f"lower-case vocabulary (--no-lowercase: cased), accents are {done} ({other} if that is wrong)"
        if not self.marks:
            return f"{choice}: the text has none"
        marks, merged = self.marks / max(1, self.letters), self.merged / self.words
        pair = " ({!r} and {!r})".format(*(normalize("NFC", word) for word in self.example)) if self.example else ""
        return (
            f"{choice}: {100 * marks:.2f} in 100 letters, and without them {merged:.2%} of the words would become "
            f"another{pair}"
        )


def measure_accents(words: Mapping[str, int]) -> AccentStats:
    """words: how often each stands in the text, read by the rules of KEEPING. Their order does not matter."""
    letters = marks = 0
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # stripped word -> word -> how often it stands in the text
    for word, count in words.items():
        spelled = word if word.isascii() else _spelled(word)
        num_marks = 0 if word.isascii() else sum(map(unicode.is_mark, spelled))
        letters += count * (len(spelled) - num_marks)
        marks += count * num_marks
        if num_marks:
            counts[" ".join(STRIP_ACCENTS(word))][spelled] += count
    merged, most, example = 0, 0, None
    for plain, forms in sorted(counts.items()):
        forms[plain] += words.get(plain, 0)
        (kept, _), *others = sorted(forms.items(), key=lambda form: (-form[1], form[0]))
        merged += sum(count for _, count in others)
        if others and others[0][1] > most:
            most, example = others[0][1], (others[0][0], kept)
    return AccentStats(letters, marks, sum(words.values()), merged, example)


def _spelled(word: str) -> str:
    """Decomposed, so that é is one word whichever way it is encoded, and without the variation selectors of emoji."""
    return "".join(char for char in unicode.decompose_text(word) if not unicode.is_variation_selector(char))


def strip_accents_from(words: Mapping[str, int]) -> Counter[str]:
    """The words as STRIPPING reads the text that they were read from."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for plain in [word] if word.isascii() else STRIP_ACCENTS(word):
            counts[plain] += count
    return counts
