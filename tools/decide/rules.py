"""Statements about texts, made by rule from Wikipedia and SQuAD, each with whether it holds.

topics: a passage with its article's title, its heading, or what the first sentence says its subject is
        ("Anarchism is a political philosophy"); statements that do not hold are those of other passages, and some whose
        vectors are near the right one's.
questions: a passage with its own question and with others of the same article; a question with its answer, and with
        answers of other questions about the passage.
facts: sentences of a passage as they are, as questions, with another name or number in them, with "not", as "It is not
        true that ..."; numbers as "more than" and "fewer than".
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
HEADING = re.compile(r"^[A-Z][^.!?]{2,40}\.$")
KIND = re.compile(
    r"^.{0,200}?\b(?:is|was|are|were) (?:an?|the|one of the|any) ((?:[a-zA-Z\-]+ ){0,3}?[a-zA-Z\-]+)"
    r"(?= (?:of|in|from|by|that|which|who|for|with|located|based|at|on|and|to|used|born|is|was|published|written)\b"
    r"|[,.;(])"
)
NUMBER = re.compile(r"\b(\d{1,3}(?:,\d{3})+|\d{1,4}) ((?:[a-z]+ )?[a-z]+s)\b")
NAME = re.compile(r"(?<![.!?] )(?<!^)\b([A-Z][a-z]+(?: [A-Z][a-z]+)*)\b")
EMPTY_HEADINGS = {"see also", "references", "external links", "notes", "further reading"}
AUXILIARIES = {
    "is",
    "was",
    "are",
    "were",
    "has",
    "had",
    "can",
    "could",
    "will",
    "would",
    "did",
    "does",
    "may",
    "must",
    "should",
}
PRONOUNS = {"he", "she", "it", "they", "there", "this", "these", "that", "those", "his", "her", "its", "their"}

TOPIC_FORMS = (
    *["{}"] * 6,
    "What is this about? {}",
    "What is the text about? {}",
    "This is about {}.",
    "This text is about {}.",
    "The topic is {}.",
    "Which topic fits? {}",
    "It is about {}.",
    "Subject: {}",
    "{}.",
)
YES_NO_FORMS = ("Is this about {}?", "Does the text deal with {}?", "The text mentions {}.", "Is {} the topic?")
DENIALS = ("Is it false that {}", "It is not true that {}", "It is wrong to say that {}")
COMPARISONS = (
    ("Were there more than {} {}?", lambda n, k: n > k),
    ("Is the number of {1} at least {0}?", lambda n, k: n >= k),
    ("More than {} {}.", lambda n, k: n > k),
    ("Fewer than {} {}.", lambda n, k: n < k),
    ("Are there less than {} {}?", lambda n, k: n < k),
    ("{} {}", lambda n, k: n == k),
)
MOST_WORDS = 110  # of a text
MOST_STATEMENTS = 7  # of a text
MOST_ANSWER_WORDS = 8


@dataclass(frozen=True)
class Example:
    """A text and statements about it.

    kind: the rule.
    holds: of each statement, whether it holds.
    is_choice: whether one of them holds at most.
    """

    kind: str
    text: str
    statements: tuple[str, ...]
    holds: tuple[bool, ...]
    is_choice: bool


def sentences(text: str) -> list[str]:
    return [sentence for sentence in SENTENCE_END.split(text.strip()) if sentence]


def shortened(text: str) -> str:
    return " ".join(text.split()[:MOST_WORDS])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Article:
    """title; kind: what its first sentence says that it is about, or ""; sections: (heading or "", paragraph)."""

    title: str
    kind: str
    sections: list[tuple[str, str]]


def read_articles(files: Sequence[Path]) -> list[Article]:
    """The articles of Wikipedia with at least two paragraphs of prose."""
    import pyarrow.parquet as pq

    articles = []
    for file in files:
        table = pq.read_table(file, columns=["title", "text"])
        for title, text in zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True):
            article = read_article(re.sub(r"\(.*?\)", "", title).strip(), text)
            if len(article.sections) > 1:
                articles.append(article)
    return articles


def read_article(title: str, text: str) -> Article:
    heading = ""
    kind = ""
    sections: list[tuple[str, str]] = []
    for line in filter(str.strip, text.split("\n")):
        if HEADING.match(line) and len(line.split()) <= 6:
            heading = "" if line[:-1].lower() in EMPTY_HEADINGS else line[:-1]
            continue
        if len(line.split()) < 12 or "formula_" in line or "{{" in line:
            continue
        if not sections and (match := KIND.match(line[:400])):
            kind = match[1]
        sections.append((heading, line))
    return Article(title, kind, sections)


class Topics:
    """Passages of articles with their titles, headings and kinds."""

    def __init__(self, articles: Sequence[Article], rng: random.Random) -> None:
        import bothways

        self.articles = articles
        self.rng = rng
        self.vectors = bothways.load("bothways-en-static")
        self.titles = [article.title for article in articles]
        self.kinds = [article.kind for article in articles if article.kind]
        self.headings = [heading for article in articles for heading, _ in article.sections if heading]

    def examples(self) -> Iterator[Example]:
        for article in self.articles:
            for heading, paragraph in self.rng.sample(article.sections, 2):
                draw = self.rng.random()
                if article.kind and draw < 0.45:
                    others = [*self.rng.sample(self.kinds, 4), *self.near(article.kind, self.kinds, 2)]
                    yield self.example("kind", paragraph, article.kind, others)
                elif heading and draw < 0.72:
                    own = [*{other for other, _ in article.sections if other} - {heading}]
                    others = [*self.rng.sample(own, min(3, len(own))), *self.rng.sample(self.headings, 3)]
                    yield self.example("heading", paragraph, heading, others)
                elif draw < 0.9:
                    others = [*self.rng.sample(self.titles, 3), *self.near(article.title, self.titles, 3)]
                    yield self.example("title", paragraph, article.title, others)
                else:
                    other = self.rng.choice(article.sections)[1]
                    yield from facts(shortened(paragraph), other, self.rng)

    def near(self, right: str, pool: Sequence[str], number: int) -> list[str]:
        """Names whose vectors are near the right one's, but for the two nearest, which may hold."""
        drawn = self.rng.sample(pool, 60)
        vectors = self.vectors.embed([right, *drawn])
        order = np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")
        return [drawn[index] for index in order[2 : 2 + number]]

    def example(self, kind: str, paragraph: str, right: str, others: Sequence[str]) -> Example:
        """A passage of a paragraph with the right name among others, or sometimes without it."""
        rng = self.rng
        form = rng.choice(TOPIC_FORMS) if rng.random() < 0.85 else rng.choice(YES_NO_FORMS)
        wrong = [form.format(name) for name in others if name.lower() != right.lower()]
        has_right = rng.random() < 0.88
        return Example(
            kind=kind,
            text=passage(paragraph, rng),
            statements=(form.format(right), *wrong) if has_right else tuple(wrong),
            holds=(True,) * has_right + (False,) * len(wrong),
            is_choice=True,
        )


def passage(paragraph: str, rng: random.Random) -> str:
    """One to five sentences of a paragraph: most texts of users are short."""
    parts = sentences(paragraph)
    number = rng.choice((1, 1, 2, 3, 5))
    first = rng.randrange(max(1, len(parts) - number + 1))
    return shortened(" ".join(parts[first : first + number]))


# --- questions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A question of SQuAD, its answer, and the place of the answer in the passage."""

    question: str
    answer: str
    start: int


def question_examples(file: Path, rng: random.Random) -> Iterator[Example]:
    articles = []
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        passages = [
            (
                paragraph["context"],
                [
                    Asked(asked["question"].strip(), asked["answers"][0]["text"], asked["answers"][0]["answer_start"])
                    for asked in paragraph["qas"]
                ],
            )
            for paragraph in article["paragraphs"]
            if paragraph["qas"]
        ]
        if len(passages) > 3:
            articles.append(passages)

    for passages in articles:
        for index, (context, questions) in enumerate(passages):
            elsewhere = [asked for other, (_, several) in enumerate(passages) if other != index for asked in several]
            far = rng.choice(rng.choice(rng.choice(articles))[1])
            yield question_example(context, questions, elsewhere, far, rng)
            if rng.random() < 0.6:
                yield from facts(shortened(context), passages[index - 1][0], rng)


def question_example(
    context: str, questions: Sequence[Asked], elsewhere: Sequence[Asked], far: Asked, rng: random.Random
) -> Example:
    """A passage, or the sentence with the answer, with a question that it answers among others."""
    asked = rng.choice(questions)
    sentence = sentence_at(context, asked.start)
    text = sentence if sentence and rng.random() < 0.5 else shortened(context)
    if asked.answer not in text:
        asked = min(questions, key=lambda question: question.start)

    wrong = [other.question for other in [*rng.sample(elsewhere, min(2, len(elsewhere))), far]]
    right = [asked.question]
    if len(asked.answer.split()) <= MOST_ANSWER_WORDS:
        right.append(f"{asked.question} {asked.answer}")
        answers = {other.answer for other in questions if len(other.answer.split()) <= MOST_ANSWER_WORDS}
        others = sorted(answer for answer in answers - {asked.answer} if answer in text)
        wrong += [f"{asked.question} {answer}" for answer in rng.sample(others, min(2, len(others)))]
    return Example("question", text, (*right, *wrong), (True,) * len(right) + (False,) * len(wrong), is_choice=False)


def sentence_at(text: str, place: int) -> str:
    """The sentence of a text that has this character, or ""."""
    end = 0
    for sentence in sentences(text):
        start = text.find(sentence, end)
        end = start + len(sentence)
        if start <= place < end:
            return sentence
    return ""


# --- facts ------------------------------------------------------------------------------------------------------------


def facts(text: str, other_text: str, rng: random.Random) -> Iterator[Example]:
    """Statements from sentences of a text. other_text: for names that are not in a sentence."""
    stated: list[tuple[str, bool]] = []
    parts = [sentence for sentence in sentences(text) if 5 <= len(sentence.split()) <= 26]
    for sentence in rng.sample(parts, min(3, len(parts))):
        statement, holds = changed(sentence, f"{text} {other_text}", rng)
        if rng.random() < 0.6:
            statement = as_question(statement) or statement
        if len(statement.split()) <= 24:
            stated.append((statement, holds))
            if rng.random() < 0.25:
                denied = statement[0].lower() + statement[1:]
                stated.append((rng.choice(DENIALS).format(denied), not holds))

    for match in [*NUMBER.finditer(text)][:2]:
        stated += compared(int(match[1].replace(",", "")), match[2], rng)
    if stated:
        statements, holds_each = zip(*stated[:MOST_STATEMENTS], strict=True)
        yield Example("fact", text, statements, holds_each, is_choice=False)


def changed(sentence: str, names_of: str, rng: random.Random) -> tuple[str, bool]:
    """A sentence as it is, or with another name or number in it, or with "not"; and whether it still holds."""
    draw = rng.random()
    if draw < 0.3:
        names = [*NAME.finditer(sentence)]
        others = sorted(name for name in {*NAME.findall(names_of)} if name not in sentence)
        if names and others:
            name = rng.choice(names)
            return sentence[: name.start(1)] + rng.choice(others) + sentence[name.end(1) :], False
    elif draw < 0.5:
        number = re.search(r"\b\d{1,6}\b", sentence)
        if number:
            value = int(number[0])
            other = rng.choice([value + 1, value * 2 + 1, value + 10, value // 2])
            if other != value:
                return sentence[: number.start()] + str(other) + sentence[number.end() :], False
    elif draw < 0.65:
        words = sentence.split()
        for index, word in enumerate(words[1:12], 1):
            if word in AUXILIARIES and words[index + 1 : index + 2] not in (["not"], ["never"], []):
                return " ".join([*words[: index + 1], "not", *words[index + 1 :]]), False
    return sentence, True


def as_question(sentence: str) -> str:
    """ "The house was built in 1923." as "Was the house built in 1923?"; "" for other sentences."""
    words = sentence.rstrip(".").split()
    for index, word in enumerate(words[1:7], 1):
        if word not in AUXILIARIES:
            continue
        subject, rest = words[:index], words[index + 1 :]
        if not 2 <= len(rest) <= 14 or re.search(r"[,;:(]", " ".join(subject)) or subject[0].lower() in PRONOUNS:
            return ""
        first = subject[0] if NAME.match(f"x {subject[0]}", 2) else subject[0].lower()
        return f"{capital(word)} {' '.join([first, *subject[1:], *rest])}?"
    return ""


def compared(number: int, things: str, rng: random.Random) -> Iterator[tuple[str, bool]]:
    """Two comparisons of a number of things with another number."""
    for _ in range(2 if 1 <= number <= 5000 else 0):
        other = max(0, int(number * rng.choice((0.3, 0.5, 0.8, 1.2, 1.5, 3))) + rng.choice((-1, 0, 1)))
        form, holds = rng.choice(COMPARISONS)
        yield form.format(other, things), holds(number, other)


# --- all of them ------------------------------------------------------------------------------------------------------


def make_examples(data: Path, seed: int) -> list[Example]:
    """All examples, in a random order that depends on the seed alone."""
    rng = random.Random(seed)
    files = sorted((data / "wikipedia-2015-en").glob("train-*.parquet"))
    examples = [
        *question_examples(data / "squad" / "train-v1.1.json", rng),
        *Topics(read_articles(files), rng).examples(),
    ]
    rng.shuffle(examples)
    return examples
