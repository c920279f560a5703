"""Groups of entities: the forms of a name, such as "U.S.", "the US" and "US's", under one name."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

POSSESSIVE = re.compile(r"['’]s?$")
ARTICLE = re.compile(r"^(?:the|a|an)\s+")
DOTTED = re.compile(r"\b(?:\w\.){2,}\w?")  # U.S.A.
AROUND = " .,;:!?()[]\"'“”‘’-"  # punctuation that is no part of a name
PERSONS = frozenset({"PER", "PERSON"})  # labels of persons

Value = tuple[str, str]  # the label of an entity, and its text


def group_document(values: Sequence[Value], persons: frozenset[str] = PERSONS) -> list[str]:
    """The group of each value of a document: its normal form; for the last word of one longer name of a person in the
    same document, the normal form of that name."""
    forms = [normal_form(text) for _, text in values]

    full_names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (label, _), form in zip(values, forms, strict=True):
        if label.upper() in persons and " " in form:
            surname = form.rpartition(" ")[2]
            full_names[label, surname].add(form)

    groups = []
    for (label, text), form in zip(values, forms, strict=True):
        longer = full_names.get((label, form), set())
        if len(longer) == 1:  # of two persons with this surname it may be either
            groups.append(next(iter(longer)))
        else:
            groups.append(form or text)
    return groups


def normal_form(text: str) -> str:
    """A value without differences of spelling: case, spaces, dots of abbreviations, a leading article, a possessive,
    punctuation around it."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    text = DOTTED.sub(lambda match: match[0].replace(".", ""), text)
    text = POSSESSIVE.sub("", text.strip(AROUND))
    text = ARTICLE.sub("", text)
    return text.strip(AROUND)
