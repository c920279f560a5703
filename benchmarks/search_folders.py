"""Search in small folders: is the right passage first, is it sure, and what is found when nothing answers?

    python -m benchmarks.search_folders [--out DIR] [--encoder]

200 folders are drawn by lot from SciFact, Cranfield and the paragraphs of SQuAD 1.1 dev: 5, 10, 20 or 40 documents of
at most 150 words, a file each. Each folder is asked up to five questions whose document is in it, and five of the same
set whose documents are not. Three folders in benchmarks/folders (a handbook, notes, letters) come with twenty questions
each: fourteen with a phrase of the passage that answers them, six that nothing answers.

For each way of searching and size of folder, the shares of the answerable questions whose right passage is first, is
first and not weak ("sure"), is first and weak; and the shares of the others whose hits are all weak ("quiet").

--encoder: with vectors of bothways-en instead of static ones. Writes search_folders.json into DIR.
Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search import DATA
from benchmarks.search_scores import WORDS, read_sets
from bothways.search.indexing import index
from bothways.search.spaces import VectorModel, open_vectors
from bothways.search.store import Hit, Store
from bothways.text.data.squad import read_squad

SMALL = Path(__file__).parent / "folders"
FOLDERS = 200
SIZES = (5, 10, 20, 40)
ASKED = 5  # questions with an answer, and questions without one, of each folder
WAYS = ("hybrid", "words", "vectors")


@dataclass(frozen=True)
class Asked:
    """A question. documents: the names of those that answer it; phrase: of the passage that does, instead. Nothing
    answers a question with neither."""

    text: str
    documents: frozenset[str] = frozenset()
    phrase: str = ""

    def is_answered_by(self, hit: Hit) -> bool:
        return self.phrase in hit.text if self.phrase else hit.path.stem in self.documents


@dataclass(frozen=True)
class Collection:
    """Documents by name, and questions with the names of the documents that answer each."""

    documents: Mapping[str, str]
    questions: Mapping[str, frozenset[str]]


@dataclass
class Counts:
    """Questions with an answer: all, those whose passage is first, and is also sure; those without: all, and quiet."""

    answerable: int = 0
    first: int = 0
    sure: int = 0
    others: int = 0
    quiet: int = 0

    def add(self, hits: list[Hit], question: Asked) -> None:
        if not (question.documents or question.phrase):
            self.others += 1
            self.quiet += all(hit.weak for hit in hits)
            return

        self.answerable += 1
        if hits and question.is_answered_by(hits[0]):
            self.first += 1
            self.sure += not hits[0].weak

    def shares(self) -> dict[str, float]:
        answerable, others = self.answerable or 1, self.others or 1
        return {
            "right first": self.first / answerable,
            "right first and sure": self.sure / answerable,
            "right first, called weak": (self.first - self.sure) / answerable,
            "others quiet": self.quiet / others,
        }


# --- the folders ------------------------------------------------------------------------------------------------------


def collections() -> dict[str, Collection]:
    """SciFact and Cranfield as in search_scores, and the paragraphs of SQuAD."""
    found = {}
    for name, data in read_sets().items():
        questions = {
            text: frozenset(document for document, grade in data.qrels.get(query, {}).items() if grade > 0)
            for query, text in data.queries.items()
        }
        found[name] = Collection(data.documents, {text: own for text, own in questions.items() if own})

    rows = read_squad(DATA / "squad/dev-v1.1.json")
    names = {context: str(number) for number, context in enumerate(dict.fromkeys(row.context for row in rows))}
    found["SQuAD"] = Collection(
        {name: " ".join(context.split()[:WORDS]) for context, name in names.items()},
        {row.question: frozenset([names[row.context]]) for row in rows},
    )
    return found


def draw(collection: Collection, size: int, draws: random.Random) -> tuple[dict[str, str], list[Asked]]:
    """A folder of `size` documents, of which some questions ask, and its questions."""
    answering = sorted({name for own in collection.questions.values() for name in own if name in collection.documents})
    chosen = {name: collection.documents[name] for name in draws.sample(answering, size)}

    asked = [Asked(text, own.intersection(chosen)) for text, own in collection.questions.items()]
    inside = [question for question in asked if question.documents]
    outside = [question for question in asked if not question.documents]

    return chosen, [*draws.sample(inside, min(ASKED, len(inside))), *draws.sample(outside, ASKED)]


def small_folder(name: str) -> list[Asked]:
    rows = json.loads((SMALL / name / "questions.json").read_text())
    return [Asked(text, phrase=phrase or "") for text, phrase in rows]


# --- asking -----------------------------------------------------------------------------------------------------------


def answers(folder: Path, place: Path, questions: list[Asked], encoder: str | None) -> Iterator[tuple[str, Asked, list[Hit]]]:
    """The hits of each question, by each way of searching."""
    index([folder], place, static_model="bothways-en-static", encoder=encoder, globs=["*.md", "*.txt"])

    opened: dict[str, VectorModel] = {}

    def vectors(space: str, model: str) -> VectorModel:
        if space not in opened:
            opened[space] = open_vectors(space, model)  # type: ignore[arg-type]
        return opened[space]

    with Store(place) as store:
        for question in questions:
            for way in WAYS:
                yield way, question, store.search(question.text, how=way, vectors=vectors)  # type: ignore[arg-type]


def measure(encoder: str | None) -> dict[str, dict[str, Counts]]:
    """{way of searching: {kind of folder: counts}}."""
    found: dict[str, dict[str, Counts]] = {way: defaultdict(Counts) for way in WAYS}
    sets, draws = collections(), random.Random(0)
    for number in range(FOLDERS):
        name = [*sets][number % len(sets)]
        size = SIZES[number // len(sets) % len(SIZES)]
        documents, questions = draw(sets[name], size, draws)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "documents")
            folder.mkdir()
            for document, text in documents.items():
                (folder / f"{document}.txt").write_text(text)
            for way, question, hits in answers(folder, Path(place, "store"), questions, encoder):
                for kind in (f"{size} documents", name, "all drawn"):
                    found[way][kind].add(hits, question)

    for folder in sorted(path for path in SMALL.iterdir() if path.is_dir()):
        with tempfile.TemporaryDirectory() as place:
            for way, question, hits in answers(folder, Path(place, "store"), small_folder(folder.name), encoder):
                for kind in (folder.name, "all small"):
                    found[way][kind].add(hits, question)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/search-folders"))
    parser.add_argument("--encoder", action="store_true")
    options = parser.parse_args()

    found = measure("bothways-en" if options.encoder else None)
    for way, kinds in found.items():
        print(way)
        for kind, counts in kinds.items():
            shares = ", ".join(f"{key} {100 * value:.1f} %" for key, value in counts.shares().items())
            print(f"  {kind:14} {counts.answerable:4} and {counts.others:4} questions: {shares}")

    options.out.mkdir(parents=True, exist_ok=True)
    figures = {way: {kind: vars(counts) for kind, counts in kinds.items()} for way, kinds in found.items()}
    (options.out / "search_folders.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
