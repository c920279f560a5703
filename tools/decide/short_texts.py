"""Statements about short texts, made by rule: most texts of users are as short as a question or a line of speech.

asks:   questions of SQuAD with the title of their article ("Alaska") among others.
answer: a question of SQuAD with what would answer it ("a place") among others.
tone:   what a character of a novel says, with how it is said ("angrily" makes "angry") among other tones.
term:   a sentence of a scientific abstract with what a term in it is ("parsing is a task"), from SciERC's labels.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.decide.examples import Example, in_a_form

# What a question asks for, by how it begins, and names for it.
ANSWERS = {
    r"^who\b|^whose\b|\bby whom\b": ("a person", "who it was", "a person's name", "people"),
    r"^when\b|\bwhat (year|date|month|day|century|decade)\b": (
        "a date",
        "the time",
        "when it happened",
        "a point in time",
    ),
    r"^where\b|\bwhat (city|country|state|town|location|place|region)\b": ("a place", "the location", "where it is"),
    r"^how many\b|\bwhat number\b|\bwhat percent": ("a number", "how many", "a quantity", "a count"),
    r"^how (much|long|large|big|old|far|high|tall)\b": ("an amount", "a size or an amount", "a measure"),
    r"^why\b|\bwhat (caused|reason)\b|\bfor what (reason|purpose)\b": ("a reason", "why", "a cause", "an explanation"),
    r"^how (did|do|does|can|could|is|are|was|were)\b": ("a way to do something", "how it is done", "a method"),
}
ANSWER_FORMS = ("{}", "{}", "asks for {}", "The question asks for {}.", "The answer is {}.", "What is wanted? {}")

# Tones, whose adverbs stand behind speech in novels. Tones of one group are never beside each other.
TONES = {
    "angry": ("angrily indignantly fiercely hotly furiously savagely wrathfully", "anger"),
    "annoyed": ("impatiently irritably testily peevishly crossly sharply petulantly", "anger"),
    "contemptuous": ("contemptuously scornfully disdainfully sneeringly sarcastically", "anger"),
    "sad": ("sadly mournfully gloomily plaintively piteously sorrowfully dejectedly ruefully", "grief"),
    "bitter": ("bitterly", "grief"),
    "cheerful": ("cheerfully cheerily gaily merrily brightly heartily joyfully joyously", "joy"),
    "triumphant": ("triumphantly proudly exultantly", "joy"),
    "afraid": ("timidly nervously fearfully tremulously anxiously", "fear"),
    "kind": ("kindly gently tenderly soothingly affectionately lovingly softly warmly", "love"),
    "polite": ("politely courteously civilly respectfully", "love"),
    "eager": ("eagerly excitedly enthusiastically impetuously", "joy"),
    "sorry": ("apologetically humbly penitently remorsefully", "grief"),
}
TONE_FORMS = ("{}", "{}", "{}", "The speaker is {}.", "Is the speaker {}?", "How does it sound? {}", "It sounds {}.")
SPEECH = re.compile(
    r"[\"\u201c]([^\"\u201c\u201d]{25,300})[\"\u201d]\s+"
    r"(?:(?:he|she|I|[A-Z][a-z]+|the [a-z]+)\s+)?"
    r"(?:said|cried|asked|replied|answered|exclaimed|remarked|returned|observed|continued|added|began|called)"
    r"(?:\s+(?:he|she|I|[A-Z][a-z]+\.?(?: [A-Z][a-z]+)?|the [a-z]+))?,?\s+([a-z]+ly)\b"
)

TERMS = {
    "Task": ("a task", "a problem to solve"),
    "Method": ("a method", "a technique"),
    "Metric": ("a metric", "a measure of quality"),
    "Material": ("data", "a data set or material"),
}
TERM_FORMS = ("{} is {}", "{} is {}.", "Is {} {}?", "What is {}? {}")


def asked_examples(file: Path, rng: random.Random) -> Iterator[Example]:
    """Kinds "asks" and "answer", from SQuAD's training part."""
    articles = [
        (
            article["title"].replace("_", " "),
            [asked["question"].strip() for paragraph in article["paragraphs"] for asked in paragraph["qas"]],
        )
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]
    ]
    titles = [title for title, _ in articles]
    for title, questions in articles:
        for question in rng.sample(questions, min(9, len(questions))):
            others = [other for other in rng.sample(titles, 6) if other != title]
            yield in_a_form("asks", question, title, others, rng)

        for question in rng.sample(questions, min(16, len(questions))):
            kinds = [names for begins, names in ANSWERS.items() if re.search(begins, question, re.IGNORECASE)]
            if len(kinds) == 1:
                others = [rng.choice(names) for names in ANSWERS.values() if names != kinds[0]]
                rng.shuffle(others)
                yield in_a_form("answer", question, rng.choice(kinds[0]), others, rng, ANSWER_FORMS)


def tone_examples(texts: Sequence[str], rng: random.Random) -> Iterator[Example]:
    """texts: whole novels."""
    tone_of = {adverb: tone for tone, (adverbs, _) in TONES.items() for adverb in adverbs.split()}
    for text in texts:
        for speech, adverb in SPEECH.findall(re.sub(r"\s+", " ", text)):
            if adverb in tone_of:
                right = tone_of[adverb]
                others = [tone for tone, (_, group) in TONES.items() if group != TONES[right][1]]
                yield in_a_form("tone", speech.strip(" ,"), right, rng.sample(others, 5), rng, TONE_FORMS)


def term_examples(file: Path, rng: random.Random) -> Iterator[Example]:
    """file: in CoNLL's columns, the word first and its label last."""
    for block in file.read_text(encoding="utf-8").split("\n\n"):
        rows = [line.split() for line in block.splitlines() if line and not line.startswith("-DOCSTART-")]
        terms = terms_of(rows)
        words = [row[0] for row in rows]
        if not terms or len(words) < 8:
            continue
        term, label = rng.choice(terms)
        form = rng.choice(TERM_FORMS)
        right = form.format(term, rng.choice(TERMS[label]))
        wrong = [form.format(term, rng.choice(names)) for other, names in TERMS.items() if other != label]
        yield Example("term", " ".join(words), (right, *wrong), (True,) + (False,) * len(wrong), is_choice=True)


def terms_of(rows: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The terms of a sentence with their labels, of those in TERMS."""
    terms: list[tuple[list[str], str]] = []
    before = "O"
    for row in rows:
        label = row[-1].partition("-")[2]
        if label in TERMS:
            if label == before:
                terms[-1][0].append(row[0])
            else:
                terms.append(([row[0]], label))
        before = label
    return [(" ".join(words), label) for words, label in terms]
