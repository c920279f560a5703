"""Pages of docs/guide, read by the tests that hold their sentences and tables."""

import re
from pathlib import Path

GUIDES = Path(__file__).parent.parent / "docs" / "guide"
# Numbers that the guides write in words.
FRACTIONS = {1 / 5: "a fifth", 1 / 3: "a third", 0.1: "a tenth", 2 / 3: "two thirds", 0.5: "half"}
WORDS = {3: "three", 4: "four", 5: "five", 8: "eight", 10: "ten"}


def guide(page):
    return (GUIDES / f"{page}.md").read_text(encoding="utf-8")


def words_of(page):
    """The text of a page in one line."""
    return " ".join(guide(page).split())


def table_of(page, header):
    """The rows of the table whose header begins with these cells, each a list of its cells."""
    lines = guide(page).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {header}"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def code_in(text):
    """What stands between backquotes."""
    return re.findall(r"`([^`\n]+)`", text)


def missing_sentences(page, numbers):
    """The sentences that a page has not with the numbers of the code. numbers: value by sentence, with a place for it.

    A value may stand there as a number, as a number with % after a space, or in words.
    """
    text = words_of(page)
    missing = []
    for sentence, value in numbers.items():
        if "%}" in sentence:
            forms = [sentence.format(value).replace("%", " %")]
        else:
            forms = [sentence.format(value)]
            forms += [
                sentence.format(words[value]) for words in (FRACTIONS, WORDS) if value in words and "{}" in sentence
            ]
        if not any(form in text for form in forms):
            missing.append(forms[0])
    return missing
