"""Search by words, by vectors and by both (benchmarks/search.py, the part quality)."""

from benchmarks.figures.rankings import ndcg
from benchmarks.figures.scores import Figures, markdown, with_bounds
from benchmarks.measurements import Measurement

SETS = {
    "SciFact": "SciFact (300 queries, 5,183 documents)",
    "Cranfield": "Cranfield (225 queries, 1,400 documents)",
}
WAYS = {
    "words": "words (BM25)",
    "words, bm25s": "words, bm25s with the same stemmer",
    "vectors, bothways-en": "vectors, bothways-en",
    "vectors, MiniLM-L6 (sentence-transformers)": "vectors, MiniLM-L6 by sentence-transformers, 256 tokens",
    "vectors, documents in int8": "vectors, documents rounded to int8",
    "vectors, static": "vectors, static",
    "vectors, static queries": "vectors, static queries on documents of bothways-en",
    "both": "**both**",
    "both, by ranks": "both, reciprocal ranks instead of scores",
    "both, static": "both, static documents",
    "both, static queries": "both, static queries",
}


def figures(measurement: Measurement) -> Figures:
    values: dict[str, float] = {}
    rows = []
    for way, title in WAYS.items():
        cells = []
        for name in SETS:
            stated = ndcg(measurement, name, way)
            values |= with_bounds(f"{name}.{way}", stated)
            cells.append(stated.fraction())
        rows.append([title, *cells])
    return Figures(values, {"quality": markdown(["nDCG@10", *SETS.values()], rows)})
