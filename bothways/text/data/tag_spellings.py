"""Other spellings of tags, read as B-X, I-X, E-X, S-X and O: b-per, B_PER, PER-B, BILOU, BMES, B and I alone, brackets.

Brackets are as in CoNLL-2005 and CoNLL-2012: (PERSON* opens, * continues or is outside, *) closes, (GPE) is a word.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bothways.base.errors import InputError, flag
from bothways.text.data.tags import OUTSIDE, Sentence, is_entity_tag
from bothways.text.rows.row_errors import RowErrors

OUTSIDE_SPELLINGS = (OUTSIDE, "o", "0", "-", "_")
SEPARATOR = "[-_:/.|]"
# The letters of each scheme; E and S belong to BIOES.
LETTERS = (
    {"B", "I", "E", "S"},
    {"B", "I", "L", "U"},  # BILOU
    {"B", "M", "E", "S"},  # BMES
    {"B", "M", "E", "W"},  # BMEWO
    {"B", "I", "E", "W"},  # BIEWO
)
STANDARD_LETTER = {"L": "E", "U": "S", "M": "I", "W": "S"}
FORMS = (
    re.compile(rf"(?P<letter>[BIESLUMW]){SEPARATOR}(?P<label>.+)", re.DOTALL | re.IGNORECASE),
    re.compile(rf"(?P<label>.+){SEPARATOR}(?P<letter>[BIESLUMW])", re.DOTALL | re.IGNORECASE),
    re.compile(r"(?P<letter>[BIESLUMW])(?P<label>)", re.IGNORECASE),
)
UNNAMED = "ENTITY"  # the label of spans whose tags are letters alone
BRACKET = re.compile(r"(?P<open>\((?P<label>[^()*\s]+))?(?P<star>\*)?(?P<close>\))?")
SHOWN = 3  # tags that a message shows


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the tags of a file are written. shown: examples for a message. convert: the tags of a sentence as the schemes
    of tags.py write them; InputError if they cannot be read."""

    shown: str
    convert: Callable[[Sequence[str]], list[str]]


def standard_tags(sentences: list[Sentence], errors: RowErrors) -> list[Sentence]:
    """The sentences of a file, with their tags as B-X, I-X, E-X, S-X and O.

    Tags that are written so already, or in no known way, stay as they are. `errors` receives a remark on how the tags
    are read, and the errors of sentences whose brackets do not fit, which are left out.
    """
    spelling = find_spelling({tag for sentence in sentences for tag in sentence.tags})
    if spelling is None:
        return sentences

    remark = f"tags are read as {spelling.shown}; {flag('scheme', 'plain')} keeps them as labels of single words"
    if remark not in errors.remarks:
        errors.remarks.append(remark)

    converted: list[Sentence] = []
    for sentence in sentences:
        try:
            converted.append(replace(sentence, tags=tuple(spelling.convert(sentence.tags))))
        except InputError as error:
            errors(InputError(f"{sentence.where}: {error}"))
    return converted


def find_spelling(tags: Collection[str]) -> Spelling | None:
    """How the distinct tags of a file are written; None if they need no change, or are written in no known way."""
    if all(map(is_entity_tag, tags)):
        return None
    if any("*" in tag for tag in tags) and all(map(_is_bracket, tags)):
        return Spelling("brackets, (X* as B-X and * as I-X or O", _from_brackets)

    named = sorted(tag for tag in tags if tag not in OUTSIDE_SPELLINGS)
    for form in FORMS:
        standard = _standard_by_tag(named, form)
        if standard is None or not _is_scheme(named, form, has_outside=len(named) < len(tags)):
            continue
        standard |= {tag: OUTSIDE for tag in OUTSIDE_SPELLINGS}
        changed = [f"{standard[tag]} ({tag!r})" for tag in sorted(tags) if standard[tag] != tag]
        return Spelling(", ".join(changed[:SHOWN]), partial(_replace, standard))
    return None


def are_entity_tags(tags: Collection[str]) -> bool:
    """Whether tags are the tags of entities, in any known spelling."""
    return all(map(is_entity_tag, tags)) or find_spelling(tags) is not None


def _replace(standard: Mapping[str, str], tags: Sequence[str]) -> list[str]:
    return [standard[tag] for tag in tags]


def _standard_by_tag(tags: Sequence[str], form: re.Pattern[str]) -> dict[str, str] | None:
    """The standard tag of each tag; None if one has another form."""
    standard: dict[str, str] = {}
    for tag in tags:
        match = form.fullmatch(tag)
        if match is None:
            return None
        letter = match["letter"].upper()
        standard[tag] = f"{STANDARD_LETTER.get(letter, letter)}-{match['label'] or UNNAMED}"
    return standard


def _is_scheme(tags: Sequence[str], form: re.Pattern[str], *, has_outside: bool) -> bool:
    """Whether the letters of tags of this form are the letters of one scheme, rather than parts of other labels."""
    matches = [match for tag in tags if (match := form.fullmatch(tag))]
    letters = {match["letter"].upper() for match in matches}
    if not any(letters <= scheme for scheme in LETTERS):
        return False
    if "M" in letters and "E" not in letters:
        return False  # a middle without an end is a slip of the pen

    if not all(match["label"] for match in matches):
        # Letters alone could be any labels, were it not for a B beside another letter or an O.
        return "B" in letters and (has_outside or len(letters) > 1)
    if letters & {"B", "I"}:
        return True
    # A file may have entities of single words only.
    return has_outside and all(is_entity_tag(f"S-{tag[2:]}") and tag[:2] in ("S-", "U-", "W-") for tag in tags)


# --- brackets ---------------------------------------------------------------------------------------------------------


def _is_bracket(tag: str) -> bool:
    match = BRACKET.fullmatch(tag)
    if match is None:
        return False
    return bool(match["star"] or (match["open"] and match["close"]))


def _from_brackets(tags: Sequence[str]) -> list[str]:
    """IOB2 tags. InputError for a bracket inside another one, or without a partner."""
    converted: list[str] = []
    label = ""  # of the span that is open
    for number, tag in enumerate(tags, 1):
        match = BRACKET.fullmatch(tag)
        assert match is not None
        if match["open"] and label:
            raise InputError(f"tag {number}, {tag!r}, opens a span inside of ({label}*; close that one first with *)")
        if match["close"] and not (match["open"] or label):
            raise InputError(f"tag {number}, {tag!r}, closes a span that is not open; open it with (NAME*")

        if match["open"]:
            label = match["label"]
            converted.append(f"B-{label}")
        else:
            converted.append(f"I-{label}" if label else OUTSIDE)
        if match["close"]:
            label = ""
    if label:
        raise InputError(f"the span ({label}* is not closed; close it with *)")
    return converted
