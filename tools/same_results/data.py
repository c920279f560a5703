"""The files that the runs read: small, seeded, and the same in every checkout."""

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.same_results.plan import LONG

TOPICS = {
    "food": ["oven", "soup", "bread", "kitchen", "recipe", "butter", "spoon", "pepper"],
    "music": ["choir", "song", "piano", "concert", "melody", "drum", "violin", "singer"],
    "sport": ["goal", "match", "coach", "team", "stadium", "race", "ball", "referee"],
}
NAMES = ["Ada", "Bob", "Clara", "Dan", "Emma", "Frank", "Gina", "Hugo"]
LAST_NAMES = ["Stone", "Reed", "Marsh", "Field"]
PLACES = ["Rome", "Oslo", "Paris", "Cairo", "Lima", "Dublin", "Kyoto", "Delhi"]
FORMS = [
    "The {a} and the {b} were {c}.",
    "Nobody saw the {a} near the {b}, which was {c}.",
    "A {c} {a} needs a {b}.",
    "We spoke about the {a}; it was {c} like a {b}.",
]
MOODS = ["good", "bad", "old", "new", "warm", "quiet", "loud", "fine"]


def sentence(source: random.Random, topic: str) -> str:
    a, b = source.sample(TOPICS[topic], 2)
    return source.choice(FORMS).format(a=a, b=b, c=source.choice(MOODS))


def write_data(place: Path) -> None:
    """All files that the runs read. The same in every checkout: they depend on this module alone."""
    source = random.Random(0)
    topics = [*TOPICS]

    def passage(topic: str, sentences: int) -> str:
        return " ".join(sentence(source, topic) for _ in range(sentences))

    def table(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        with (place / name).open("w", encoding="utf-8", newline="") as file:
            if name.endswith(".jsonl"):
                file.writelines(json.dumps(row) + "\n" for row in rows)
            else:
                writer = csv.DictWriter(file, [*rows[0]])
                writer.writeheader()
                writer.writerows(rows)

    def classes(rows: int, kinds: Sequence[str], sentences: int = 1) -> list[dict[str, Any]]:
        labels = (list(kinds) * rows)[:rows]
        return [
            {"text": passage(kind if row % 7 else kinds[0], sentences), "label": kind}
            for row, kind in enumerate(labels)
        ]

    table("topics.csv", classes(48, topics))
    table("topics-dev.csv", classes(18, topics))
    table("few.csv", classes(12, topics[:2]))
    table("long.csv", classes(24, topics, 8))
    chosen = [[topic for topic in topics if source.random() < 0.5] for _ in range(60)]
    table("multi.jsonl", [{"text": " ".join(sentence(source, one) for one in many) or "Nothing.", "labels": many}
                          for many in chosen])  # fmt: skip
    kinds = [(source.choice(topics), source.choice(topics)) for _ in range(60)]
    table("pairs.csv", [{"text1": sentence(source, a), "text2": sentence(source, b), "label": "no" if a == b else "yes"}
                        for a, b in kinds])  # fmt: skip
    table("scored.csv", [{"text1": sentence(source, a), "text2": sentence(source, b), "score": 0.9 if a == b else 0.1}
                         for a, b in kinds])  # fmt: skip
    table("similar.csv", [{"query": sentence(source, a), "passage": sentence(source, a)} for a, _ in kinds])
    counts = [source.randrange(6) for _ in range(60)]
    table("numbers.csv", [{"text": " ".join(["good"] * number + ["bad"] * (5 - number)), "label": number}
                          for number in counts])  # fmt: skip
    for name, rows in (("tags.conll", 60), ("tags-dev.conll", 20)):
        (place / name).write_text("\n".join(tagged(source) for _ in range(rows)), encoding="utf-8")
    table("questions.jsonl", [question(source, row) for row in range(36)])
    (place / "plain.txt").write_text("".join(f"{people(source)}\n" for _ in range(12)) + LONG + "\n", encoding="utf-8")
    for name, documents in (("corpus.txt", 300), ("corpus-dev.txt", 12)):
        text = "\n\n".join(passage(source.choice(topics), 6) for _ in range(documents))
        (place / name).write_text(text + "\n", encoding="utf-8")
    (place / "documents").mkdir()
    for name in ("one.txt", "two.md", "three.txt"):
        (place / "documents" / name).write_text(" ".join(people(source) for _ in range(6)) + "\n", encoding="utf-8")


def people(source: random.Random) -> str:
    return f"{source.choice(NAMES)} {source.choice(LAST_NAMES)} lives in {source.choice(PLACES)}."


def tagged(source: random.Random) -> str:
    """A sentence in CoNLL columns."""
    words = [(source.choice(NAMES), "B-PER"), *([(source.choice(LAST_NAMES), "I-PER")] * (source.random() < 0.5))]
    words += [(source.choice(["saw", "left", "likes"]), "O"), ("the", "O"), (source.choice(TOPICS["music"]), "O")]
    words += [("in", "O"), (source.choice(PLACES), "B-LOC"), (".", "O")]
    return "".join(f"{word} {tag}\n" for word, tag in words)


def question(source: random.Random, row: int) -> dict[str, Any]:
    """A question about a passage of several windows; every sixth has no answer."""
    persons = source.sample(NAMES, 4)
    places = [source.choice(PLACES) for _ in persons]
    parts = [
        f"{name} lives in {place}. {sentence(source, 'food')}" for name, place in zip(persons, places, strict=True)
    ]
    context = " ".join(parts)
    chosen = source.randrange(4)
    if row % 6 == 5:
        return {"id": str(row), "question": "Where does Zoe live?", "context": context,
                "answers": {"text": [], "answer_start": []}}  # fmt: skip
    start = context.index(f"{persons[chosen]} lives in ") + len(f"{persons[chosen]} lives in ")
    return {"id": str(row), "question": f"Where does {persons[chosen]} live?", "context": context,
            "answers": {"text": [places[chosen]], "answer_start": [start]}}  # fmt: skip
