"""Search in small folders: is the right passage first, is it sure, and what is found when nothing answers?

    python -m benchmarks.search_folders [--out DIR] [--space static|encoder|fast]

200 folders are drawn by lot from SciFact, Cranfield and the paragraphs of SQuAD 1.1 dev: 5, 10, 20 or 40 documents of
at most 150 words, a file each. Each folder is asked up to five questions whose document is in it, and five of the same
set whose documents are not. Three folders in benchmarks/folders (a handbook, notes, letters) come with twenty questions
each: fourteen with a phrase of the passage that answers them, six that nothing answers.

For each way of searching and size of folder, the shares of the answerable questions whose right passage is first, is
first and not weak ("sure"), is first and weak; and the shares of the others whose hits are all weak ("quiet").

Last come, for each way, the coefficient of `smallness` that fits the first hits in the drawn folders best (for
bothways/search/relevance.py), and predicted and observed shares of right first hits by size of folder.

--space: static vectors, those of bothways-en, or those of bothways-en searched by a static vector of the question.
Writes search_folders.json into DIR.
Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.search import DATA
from benchmarks.search_scores import WORDS, read_sets
from bothways.search.indexing import index
from bothways.search.relevance import COEFFICIENTS, smallness
from bothways.search.spaces import Space, VectorModel, open_vectors
from bothways.search.store import Hit, Store
from bothways.settings.base import How
from bothways.text.data.squad import read_squad

SMALL = Path(__file__).parent / "folders"
FOLDERS = 200
SIZES = (5, 10, 20, 40)
ASKED = 5  # questions with an answer, and questions without one, of each folder
WAYS: tuple[How, ...] = ("hybrid", "words", "vectors")


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


class Measurement:
    """Counts by way of searching and kind of folder; and of each first hit in a drawn folder its score, the smallness
    of the index, and whether it is right."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.counts: dict[str, dict[str, Counts]] = {way: defaultdict(Counts) for way in WAYS}
        self.firsts: dict[str, list[tuple[float, float, bool, str]]] = {way: [] for way in WAYS}
        self.models: dict[tuple[Space, str], VectorModel] = {}

    def vectors(self, space: Space, model: str) -> VectorModel:
        if (space, model) not in self.models:
            self.models[space, model] = open_vectors(space, model)
        return self.models[space, model]

    def ask(self, folder: Path, questions: list[Asked], kinds: Sequence[str], *, is_drawn: bool) -> None:
        """Ask the questions of a folder in each way. kinds: under which they are counted."""
        encoder = None if self.space == "static" else "bothways-en"
        with tempfile.TemporaryDirectory() as place:
            index([folder], Path(place), static_model="bothways-en-static", encoder=encoder, globs=["*.md", "*.txt"])
            with Store(place) as store:
                for question, way in product(questions, WAYS):
                    hits = store.search(question.text, how=way, vectors=self.vectors, fast=self.space == "fast")
                    for kind in kinds:
                        self.counts[way][kind].add(hits, question)
                    if hits and is_drawn:
                        right = question.is_answered_by(hits[0])
                        self.firsts[way].append((hits[0].score, smallness(store.passages), right, kinds[0]))

    def drawn_folders(self) -> None:
        sets, draws = collections(), random.Random(0)
        for number in range(FOLDERS):
            name = [*sets][number % len(sets)]
            size = SIZES[number // len(sets) % len(SIZES)]
            documents, questions = draw(sets[name], size, draws)
            with tempfile.TemporaryDirectory() as place:
                for document, text in documents.items():
                    Path(place, f"{document}.txt").write_text(text)
                self.ask(Path(place), questions, (f"{size} documents", name, "all drawn"), is_drawn=True)

    def small_folders(self) -> None:
        for folder in sorted(path for path in SMALL.iterdir() if path.is_dir()):
            self.ask(folder, small_folder(folder.name), (folder.name, "all small"), is_drawn=False)

    def slope(self, way: str) -> float:
        """The coefficient of smallness with the greatest likelihood, all other coefficients as they are."""
        scores, small, right, _ = map(np.array, zip(*self.firsts[way], strict=True))
        name = way if way == "words" else f"{way}, {self.space}"
        logits = np.log(scores / (1 - scores)) - COEFFICIENTS[name][-1] * small

        def loss(slope: float) -> float:
            shifted = logits + slope * small
            return float(np.mean(np.logaddexp(0, shifted) - right * shifted))

        return float(minimize_scalar(loss, bounds=(0, 3), method="bounded").x)

    def calibration(self, way: str) -> dict[str, tuple[float, float]]:
        """Predicted and observed shares of right first hits, by size of folder."""
        rows: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        for score, _, right, kind in self.firsts[way]:
            rows[kind].append((score, right))
        means = {kind: np.mean(np.array(of_kind, float), axis=0) for kind, of_kind in rows.items()}
        return {kind: (float(mean[0]), float(mean[1])) for kind, mean in means.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/search-folders"))
    parser.add_argument("--space", choices=["static", "encoder", "fast"], default="static")
    options = parser.parse_args()

    measured = Measurement(options.space)
    measured.drawn_folders()
    measured.small_folders()

    figures = {}
    for way, kinds in measured.counts.items():
        print(way)
        for kind, counts in kinds.items():
            shares = ", ".join(f"{key} {100 * value:.1f} %" for key, value in counts.shares().items())
            print(f"  {kind:14} {counts.answerable:4} and {counts.others:4} questions: {shares}")
        slope, calibration = measured.slope(way), measured.calibration(way)
        print(f"  coefficient of smallness: {slope:.2f}")
        for kind, (predicted, observed) in calibration.items():
            print(f"  {kind:14} right first hits: predicted {predicted:.2f}, observed {observed:.2f}")
        by_kind = {kind: vars(counts) for kind, counts in kinds.items()}
        figures[way] = {"counts": by_kind, "slope": slope, "calibration": calibration}

    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"search_folders_{options.space}.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
