"""Scores of searches: a logistic model of relevance, fitted on SciFact or Cranfield, and its quality on the other.

    python -m benchmarks.search_scores [--out DIR] [--keep]
    python -m benchmarks.search_scores --answers READER [--out DIR]

The first hit of each query is an example: relevant or not by the judgements of its own set. The queries of the other
set, searched in the same documents, are examples of questions that no document answers. Each set has 1,400 documents
(the judged ones and random others), cut after 150 words, about the length of a passage.

For words, vectors and both, in each space, and for signals that are compared: AUC (own queries against those of the
other set), Brier score and expected calibration error (ten bins of equal size) of the set that was not fitted to; for
the model of the package also the reliability, and the weak hits by threshold. Last come the coefficients that are
fitted to both sets, and the backgrounds: those in bothways/search/relevance.py.

Writes search_scores.json (coefficients) and search_scores.svg, a picture of the reliability, and keeps vectors in DIR.
--keep: the scores of the hits are kept in docs/measurements; benchmarks/figures/search_scores.py computes the tables.

--answers, instead: exact match and F1 of the first answer, by the score of the passage, by the probability of a reader
and by their product, as `search --answer` has it. The folder is the 2,067 passages of SQuAD's dev set. Writes
search_answers.json. A reader: bothways finetune answer --train ../shared/data/squad/train-v1.1.json -o READER

Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

import bothways
from benchmarks import measurements
from benchmarks.figures.search_scores import figures, reliability
from benchmarks.search import DATA, cranfield
from bothways.inference.predictor import Predictor
from bothways.measure.metrics.answers import exact_match, f1
from bothways.measure.report.chart import Axis, Picture, dot, draw_picture, legend, line, plot, polyline
from bothways.measure.report.markup import join
from bothways.search.indexing import index
from bothways.search.relevance import background, word_shares
from bothways.search.spaces import open_vectors
from bothways.search.store import Hit, Store
from bothways.text.data.beir import BeirDataset
from bothways.text.data.squad import Question, read_squad
from bothways.text.retrieval.bm25 import Bm25, invert
from bothways.text.retrieval.fusion import fuse
from bothways.text.retrieval.words import Analyzer, background_shares

DOCUMENTS, WORDS, TOP = 1400, 150, 10
SPACES = {"static": ("static", "static"), "encoder": ("encoder", "encoder"), "fast": ("static", "encoder")}
PACKAGE = {
    "words": ("bm25 share", "word share"),
    "vectors": ("cosine",),
    "hybrid": ("cosine", "bm25 share", "word share"),
}
BASELINES = {"words": ("bm25", "score"), "vectors": ("cosine in index",), "hybrid": ("cosine", "bm25", "score")}
DRAWN = {"hybrid, encoder": "bothways-en", "hybrid, static": "static vectors"}
QUESTIONS, PASSAGES = 150, 5  # that are asked; of each search, that are read
Examples = dict[str, np.ndarray]  # by signal, float64 [Q, TOP]; of the queries of both sets


def passages(data: BeirDataset) -> dict[str, str]:
    """The judged documents and random others, DOCUMENTS in all, cut after WORDS words."""
    judged = {document for grades in data.qrels.values() for document in grades if document in data.documents}
    others = [document for document in data.documents if document not in judged]
    number = min(len(others), max(0, DOCUMENTS - len(judged)))
    chosen = judged.union(np.random.default_rng(0).choice(others, number, replace=False).tolist() if number else ())
    return {name: " ".join(text.split()[:WORDS]) for name, text in data.documents.items() if name in chosen}


def read_sets() -> dict[str, BeirDataset]:
    """SciFact and Cranfield, each of DOCUMENTS documents."""
    sets = {"SciFact": BeirDataset.read(DATA / "retrieval/beir-scifact"), "Cranfield": cranfield()}
    return {name: BeirDataset(passages(data), data.queries, data.qrels) for name, data in sets.items()}


def embedded(sets: Mapping[str, BeirDataset], folder: Path) -> dict[tuple[str, str, str], np.ndarray]:
    """Vectors of {(set, space, "queries" or "documents")}, float32 [N, H]; kept in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    vectors = {}
    for space, model in {"static": "bothways-en-static", "encoder": "bothways-en"}.items():
        for name, data in sets.items():
            for part, texts in {"queries": data.queries, "documents": data.documents}.items():
                file = folder / f"{name}-{space}-{part}.npy"
                if not file.exists():
                    np.save(file, bothways.load(model).embed([*texts.values()]))
                vectors[name, space, part] = np.load(file)
    return vectors


# --- signals ----------------------------------------------------------------------------------------------------------


class Words:
    """BM25 over the documents of a set."""

    def __init__(self, data: BeirDataset) -> None:
        self.analyzer = Analyzer("en")
        lists, lengths = invert([self.analyzer.terms(text) for text in data.documents.values()])
        self.bm25 = Bm25(lengths, np.ones(len(lengths), bool), background_shares("en"))
        self.lists = {term: [one] for term, one in lists.items()}


WORDS_OF: dict[str, Words] = {}


def indexed(name: str, data: BeirDataset) -> Words:
    if name not in WORDS_OF:
        WORDS_OF[name] = Words(data)
    return WORDS_OF[name]


def examples(
    sets: Mapping[str, BeirDataset], vectors: Mapping[tuple[str, str, str], np.ndarray], name: str, how: str, space: str
) -> Examples:
    """The signals of the best hits in the documents of a set, for the queries of all sets."""
    data = sets[name]
    words, documents = indexed(name, data), [*data.documents]
    of_queries, of_documents = SPACES[space]
    documents_DH = vectors[name, of_documents, "documents"]
    rows: dict[str, list[np.ndarray]] = {}
    for other, asked in sets.items():
        for (query, text), query_H in zip(asked.queries.items(), vectors[other, of_queries, "queries"], strict=True):
            terms = words.analyzer.terms(text)
            by_words, cosines = words.bm25.scores(terms, words.lists), documents_DH @ query_H
            rankings = {"words": [(by_words, 0.0)], "vectors": [(cosines, -np.inf)]}
            scores, above = zip(*rankings.get(how, [*rankings["words"], *rankings["vectors"]]), strict=True)
            slots, fused = fuse(scores, np.ones(len(cosines), bool), TOP, above=above)
            greatest, shares = word_shares(terms, words.lists, words.bm25, slots)
            grades = data.qrels.get(query, {}) if other == name else {}
            relevant = [grades.get(document, 0) > 0 for document in (documents[slot] for slot in slots)]
            found = {
                "own": np.full(len(slots), other == name),
                "relevant": np.array(relevant),
                "score": fused if len(scores) == 2 else scores[0][slots],
                "cosine": cosines[slots],
                "cosine in index": (cosines[slots] - cosines.mean()) / cosines.std(),
                "bm25": by_words[slots],
                "bm25 share": by_words[slots] / (greatest or 1.0),
                "word share": shares,
            }
            for key, values in found.items():
                rows.setdefault(key, []).append(np.pad(values.astype(np.float64), (0, TOP - len(slots))))
    return {key: np.stack(values) for key, values in rows.items()}


# --- the model --------------------------------------------------------------------------------------------------------


def first_signals(one: Examples, names: Sequence[str], place: int = 0) -> np.ndarray:
    return np.stack([one[name][:, place] for name in names], axis=1)


def fit(signals_QF: np.ndarray, relevant_Q: np.ndarray) -> np.ndarray:
    """Intercept and coefficients (at least 0) of a logistic model, float64 [1 + F]; a little L2 on scaled signals."""
    mean_F, deviation_F = signals_QF.mean(0), signals_QF.std(0) + 1e-9
    scaled = np.concatenate([np.ones((len(signals_QF), 1)), (signals_QF - mean_F) / deviation_F], axis=1)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        logits = scaled @ values
        penalty = 1e-3 * np.concatenate([[0.0], values[1:]])
        gradient = scaled.T @ (1 / (1 + np.exp(-logits)) - relevant_Q) / len(relevant_Q) + 2 * penalty
        return float(np.mean(np.logaddexp(0, logits) - relevant_Q * logits) + penalty @ values), gradient

    bounds = [(None, None)] + [(0.0, None)] * len(mean_F)
    values = minimize(loss, np.zeros(scaled.shape[1]), jac=True, bounds=bounds).x
    slopes = values[1:] / deviation_F
    return np.concatenate([[values[0] - slopes @ mean_F], slopes])


def predict(values: np.ndarray, signals_QF: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-(values[0] + signals_QF @ values[1:]))))


# --- the tables -------------------------------------------------------------------------------------------------------


def compare(by_set: Mapping[str, Examples], way: str, how: str) -> dict[str, np.ndarray]:
    """For each set, the scores of its first hits after a fit on the other set, by choice of signals; whether those hits
    are relevant, and their queries of the set; and the best score among all hits by the signals of the package."""
    arrays: dict[str, np.ndarray] = {}
    for tested, one in by_set.items():
        (other,) = (values for name, values in by_set.items() if name != tested)
        for names in dict.fromkeys([PACKAGE[how], *((name,) for name in BASELINES[how])]):
            values = fit(first_signals(other, names), other["relevant"][:, 0])
            scores = [predict(values, first_signals(one, names, place)) for place in range(TOP)]
            arrays[f"{way}/{tested}/{', '.join(names)}"] = scores[0].astype(np.float32)
            if names == PACKAGE[how]:
                arrays[f"{way}/{tested}/best"] = np.max(scores, axis=0).astype(np.float32)
        arrays[f"{way}/{tested}/relevant"] = one["relevant"][:, 0] > 0
        arrays[f"{way}/{tested}/own"] = one["own"][:, 0] > 0
    return arrays


def coefficients(
    by_set: Mapping[str, Examples], how: str, space: str, backgrounds: Mapping[str, tuple[float, float]]
) -> tuple[float, ...]:
    """Fitted to both sets, for cosines in standard deviations from the background. That of small indexes is fitted by
    search_folders."""
    both = {key: np.concatenate([one[key] for one in by_set.values()]) for key in next(iter(by_set.values()))}
    values = dict(zip(("", *PACKAGE[how]), fit(first_signals(both, PACKAGE[how]), both["relevant"][:, 0]), strict=True))
    mean, deviation = backgrounds[SPACES[space][1]]
    slope = values.pop("cosine", 0.0)
    return tuple(
        round(float(value), 3)
        for value in (
            values[""] + slope * mean,
            slope * deviation,
            values.get("bm25 share", 0.0),
            values.get("word share", 0.0),
        )
    )


def measure_backgrounds() -> dict[str, tuple[float, float]]:
    models = {"static": open_vectors("static", "bothways-en-static"), "encoder": open_vectors("encoder", "bothways-en")}
    found = {space: background(model) for space, model in models.items()}
    return {space: (round(mean, 3), round(deviation, 3)) for space, (mean, deviation) in found.items()}


def draw_reliability(rows: Mapping[str, Sequence[Mapping[str, float]]]) -> Picture:
    """Observed against predicted shares, for the ways of DRAWN. The area of a dot is the number of hits."""
    x = Axis("score: predicted share of relevant hits", 0, 1, 0.2, 56, 376, "share")
    y = Axis("observed share of relevant hits", 0, 1, 0.2, 346, 26, "share")
    shapes, samples = [line((x.at(0), y.at(0)), (x.at(1), y.at(1)), "even")], []
    for number, (way, name) in enumerate(DRAWN.items()):
        style = f"series{number}"
        places = [(x.at(row["predicted"]), y.at(row["observed"])) for row in rows[way]]
        shapes.append(polyline(places, style))
        for place, row in zip(places, rows[way], strict=True):
            text = f"{name}: {row['hits']} hits, predicted {row['predicted']:.2f}, observed {row['observed']:.2f}"
            shapes.append(dot(place, style, radius=0.4 * row["hits"] ** 0.5, tooltip=text))
        samples.append((name, join([polyline([(0, 0), (20, 0)], style), dot((10, 0), style, radius=4)])))
    description = "Observed against predicted shares of relevant first hits, in tenths of the score"
    samples.append(("equal shares", line((0, 0), (20, 0), "even")))
    shapes.append(legend((56, 400), samples))
    chart = plot("Reliability of scores", description, x, y, *shapes, size=(400, 415), corner=(12, 34))
    return draw_picture("Scores of first hits, by words and vectors", chart, size=(424, 456))


# --- answers ----------------------------------------------------------------------------------------------------------


def search_squad(contexts: Sequence[str], questions: Sequence[str], encoder: str | None) -> list[list[Hit]]:
    """The best passages for each question, by words and vectors."""
    with tempfile.TemporaryDirectory() as place:
        documents, store = Path(place, "documents"), Path(place, "store")
        documents.mkdir()
        for number, context in enumerate(contexts):
            (documents / f"{number}.txt").write_text(context)
        index([documents], store, static_model="bothways-en-static", encoder=encoder)
        with Store(store) as opened:
            return [opened.search(question, top=PASSAGES) for question in questions]


def score_answers(texts: Sequence[str], asked: Sequence[Question]) -> np.ndarray:
    """Exact match and F1 of each answer, in percent, float64 [Q, 2]."""
    golds = [[gold for gold, _ in row.answers] for row in asked]
    return 100 * np.array(
        [
            (max(exact_match(gold, text) for gold in of_row), max(f1(gold, text, "1.1") for gold in of_row))
            for text, of_row in zip(texts, golds, strict=True)
        ]
    )


def first_answers(reader: Predictor, questions: Sequence[str], found: Sequence[Sequence[Hit]]) -> dict[str, list[str]]:
    """The first answer to each question, by way of ordering the answers of the passages."""
    pairs = [(question, hit.text) for question, hits in zip(questions, found, strict=True) for hit in hits]
    read = iter(reader.answer(*map(list, zip(*pairs, strict=True))))
    choices = [[(hit.score, *next(read)) for hit in hits] for hits in found]
    return {
        "best passage": [answers[0][1].text for answers in choices],
        "probability of the reader": [max(some, key=lambda one: one[1].score)[1].text for some in choices],
        "product": [max(some, key=lambda one: one[0] * one[1].score)[1].text for some in choices],
    }


def compare_answers(reader: Predictor) -> dict[str, Any]:
    """Exact match and F1 in percent by vectors and order of answers; 95 % intervals of the gain in F1 by product."""
    rows = read_squad(DATA / "squad/dev-v1.1.json")
    asked, passages = random.Random(0).sample(rows, QUESTIONS), [*dict.fromkeys(row.context for row in rows)]
    questions, contexts = [row.question for row in asked], [row.context for row in asked]
    own = score_answers([best.text for best, *_ in reader.answer(questions, contexts)], asked).mean(0)
    print(f"own passage: exact match {own[0]:.1f}, F1 {own[1]:.1f}")
    figures: dict[str, Any] = {"own passage": own.tolist()}
    draws = np.random.default_rng(0).integers(0, QUESTIONS, (10_000, QUESTIONS))
    for name, encoder in {"static": None, "bothways-en": "bothways-en"}.items():
        found = search_squad(passages, questions, encoder)
        hits = [[hit.text in context for hit in one] for one, context in zip(found, contexts, strict=True)]
        figures[name] = {"first": 100 * np.mean([one[0] for one in hits]), "any": 100 * np.mean([*map(any, hits)])}
        print(f"{name}: own passage first {figures[name]['first']:.1f} %, in {PASSAGES} {figures[name]['any']:.1f} %")
        scores = {way: score_answers(texts, asked) for way, texts in first_answers(reader, questions, found).items()}
        for way, one in scores.items():
            low, high = np.percentile((scores["product"] - one)[:, 1][draws].mean(1), (2.5, 97.5))
            exact, by_f1 = one.mean(0)
            figures[name][way] = {"exact match": exact, "f1": by_f1, "product better": [low, high]}
            print(f"  {way:26} exact match {exact:.1f}, F1 {by_f1:.1f}; product better by {low:.1f} to {high:.1f}")
    return figures


def fit_scores(folder: Path, keep: bool) -> dict[str, Any]:
    """All tables, printed; and the picture, in a folder. keep: the scores of the hits in docs/measurements, too."""
    sets = read_sets()
    vectors = embedded(sets, folder)
    fitted: dict[str, Any] = {"backgrounds": measure_backgrounds(), "coefficients": {}}
    print("backgrounds", fitted["backgrounds"])
    arrays: dict[str, np.ndarray] = {}
    for how in PACKAGE:
        for space in SPACES if how != "words" else ["static"]:
            way = "words" if how == "words" else f"{how}, {space}"
            by_set = {name: examples(sets, vectors, name, how, space) for name in sets}
            arrays |= compare(by_set, way, how)
            fitted["coefficients"][way] = coefficients(by_set, how, space, fitted["backgrounds"])
            print(way, "coefficients", fitted["coefficients"][way])

    measurement = measurements.write(
        "search-scores",
        arrays,
        model="bothways-en, bothways-en-static",
        folder=measurements.FOLDER if keep else None,
    )
    for table in figures(measurement).tables.values():
        print("\n".join(["", *table]))
    draw_reliability({way: reliability(measurement, way) for way in DRAWN}).write(folder / "search_scores.svg")
    return fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/search-scores"))
    parser.add_argument("--answers", metavar="READER")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.answers:
        name, result = "search_answers.json", compare_answers(bothways.load(options.answers))
    else:
        name, result = "search_scores.json", fit_scores(options.out, options.keep)
    (options.out / name).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
