"""Search: quality on SciFact and Cranfield, speed on folders, speed of a million passages; beside other libraries.

    python -m benchmarks.search [--parts quality static folder million] [--out DIR] [--keep]

quality: nDCG@10 by words, by vectors and by both, with 95 % intervals over queries: Bothways, bm25s (with the same
stemmer), sentence-transformers with all-MiniLM-L6-v2. Fusion of scores beside fusion of ranks.
static: static vectors made from all-MiniLM-L6-v2 without text and fitted to text, read by model2vec; texts/s on a core.
folder: a thousand text files: the first answer, the second one, an index by the encoder against `embed`, a search.
million: a million passages of random words and vectors: how long a search takes, and how much memory.

Writes search.json; --keep: and the rankings of `quality` to docs/measurements. Data: $BOTHWAYS_DATA (default:
../shared/data).
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import bothways
from benchmarks import measurements
from benchmarks.figures.rankings import ndcg
from benchmarks.inference_texts import minilm
from benchmarks.measurements import Measurement
from benchmarks.search_rankings import best_documents, gold_ranking
from bothways.search.database import Database
from bothways.search.store import Store
from bothways.search.vector_file import append_vectors
from bothways.text.data.beir import BeirDataset
from bothways.text.retrieval.bm25 import Bm25, InvertedList, invert
from bothways.text.retrieval.fusion import fuse
from bothways.text.retrieval.words import Analyzer

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
PARTS = ("quality", "static", "folder", "million")
RANKED = 11  # documents that are ranked: one of them may be the query itself
QUERY = "who composed the opera about a barber"


# --- quality ----------------------------------------------------------------------------------------------------------


def cranfield() -> BeirDataset:
    """1,400 abstracts of aerodynamics, 225 queries; the corrected judgements of TREC."""
    folder = DATA / "retrieval/cranfield"
    documents = {}
    for part in re.split(r"^\.I ", (folder / "cran.all.1400").read_text(), flags=re.MULTILINE)[1:]:
        number, rest = part.split("\n", 1)
        title, body = rest.split(".T\n")[1].split(".A\n")[0], rest.split(".W\n", 1)[1]
        documents[number.strip()] = f"{title} {body}".replace("\n", " ")
    parts = re.split(r"^\.I ", (folder / "cran.qry").read_text(), flags=re.MULTILINE)[1:]
    queries = {str(number): part.split(".W\n")[1].replace("\n", " ") for number, part in enumerate(parts, 1)}
    qrels: dict[str, dict[str, float]] = {}
    for line in (folder / "QRelsCorrectedforTRECeval").read_text().splitlines():
        query, _, document, grade = line.split()
        qrels.setdefault(query, {})[document] = max(0.0, float(grade))
    return BeirDataset(documents, queries, qrels)


def bm25_rows(data: BeirDataset) -> np.ndarray:
    """Our BM25 scores, [queries, documents]."""
    analyzer = Analyzer("en")
    lists, lengths = invert([analyzer.terms(text) for text in data.documents.values()])
    bm25, by_term = Bm25(lengths, np.ones(len(lengths), bool)), {term: [one] for term, one in lists.items()}
    return np.stack([bm25.scores(analyzer.terms(text), by_term) for text in data.queries.values()])


def bm25s_rows(data: BeirDataset) -> np.ndarray:
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    options: dict[str, Any] = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    retriever = bm25s.BM25()
    retriever.index(bm25s.tokenize([*data.documents.values()], **options), show_progress=False)
    tokens = bm25s.tokenize([*data.queries.values()], **options, return_ids=False)
    return np.stack([retriever.get_scores(one) for one in tokens])


def cosine_rows(embed: Callable[[list[str]], np.ndarray], data: BeirDataset) -> np.ndarray:
    return embed([*data.queries.values()]) @ embed([*data.documents.values()]).T


def by_ranks(first_QD: np.ndarray, second_QD: np.ndarray) -> np.ndarray:
    """Reciprocal rank fusion (Cormack 2009) with k = 60, of the first hundred."""
    fused = np.zeros(first_QD.shape)
    for rows in (first_QD, second_QD):
        ranks = np.argsort(np.argsort(-rows, axis=1, kind="stable"), axis=1)
        fused += np.where(ranks < 100, 1 / (61 + ranks), 0)
    return fused


def measure(data: BeirDataset, rankings: Mapping[str, Any]) -> dict[str, Any]:
    """nDCG@10 and its interval for rows of scores, or for a function from the number of a query to documents."""
    return measured_rankings(data, {name: best_documents(data, rows) for name, rows in rankings.items()})


def measured_rankings(data: BeirDataset, best: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """nDCG@10 and its interval of the best documents by way to search."""
    arrays = {**gold_ranking("set", data), **{f"set/{name}": best_QT for name, best_QT in best.items()}}
    measurement = Measurement("search", {}, arrays)
    figures = {}
    for name in best:
        scored = ndcg(measurement, "set", name)
        figures[name] = {"ndcg@10": scored.value, "interval": [scored.low, scored.high]}
        print(f"  {name:44} {scored.value:.4f}  ({scored.low:.3f} to {scored.high:.3f})", flush=True)
    return figures


def quality(keep: bool = False) -> dict[str, Any]:
    """keep: whether the first documents of each query are written to docs/measurements."""
    from sentence_transformers import SentenceTransformer

    encoder, static = bothways.load(), bothways.load("bothways-en-static")
    peer = SentenceTransformer(str(minilm()), device="cpu")
    peer.max_seq_length = 256

    def embed_by_peer(texts: list[str]) -> np.ndarray:
        return np.asarray(peer.encode(texts, normalize_embeddings=True))

    figures = {}
    arrays: dict[str, np.ndarray] = {}
    for name, data in {"SciFact": BeirDataset.read(DATA / "retrieval/beir-scifact"), "Cranfield": cranfield()}.items():
        print(f"{name}: {len(data.queries):,} queries, {len(data.documents):,} documents; nDCG@10")
        words_QD, queries_QH = bm25_rows(data), encoder.embed([*data.queries.values()])
        documents_DH = encoder.embed([*data.documents.values()])
        vectors_QD, static_QD = queries_QH @ documents_DH.T, cosine_rows(static.embed, data)
        scale_D1 = np.abs(documents_DH).max(1, keepdims=True) / 127
        rounded_QD = queries_QH @ (np.rint(documents_DH / scale_D1) * scale_D1).T

        def fused(vectors: np.ndarray, words_QD: np.ndarray = words_QD) -> Callable[[int], np.ndarray]:
            allowed, above = np.ones(words_QD.shape[1], bool), [0.0, -np.inf]
            return lambda row: fuse([words_QD[row], vectors[row]], allowed, RANKED, above=above)[0]

        ways: dict[str, Any] = {
            "words": words_QD,
            "words, bm25s": bm25s_rows(data),
            "vectors, bothways-en": vectors_QD,
            "vectors, documents in int8": rounded_QD,
            "vectors, MiniLM-L6 (sentence-transformers)": cosine_rows(embed_by_peer, data),
            "vectors, static": static_QD,
            "vectors, static queries": static.embed([*data.queries.values()]) @ documents_DH.T,
            "both": fused(vectors_QD),
            "both, by ranks": by_ranks(words_QD, vectors_QD),
            "both, static": fused(static_QD),
            "both, static queries": fused(static.embed([*data.queries.values()]) @ documents_DH.T),
        }
        best = {way: best_documents(data, rows) for way, rows in ways.items()}
        figures[name] = measured_rankings(data, best)
        arrays |= {**gold_ranking(name, data), **{f"{name}/{way}": best_QT for way, best_QT in best.items()}}
    if keep:
        measurements.write("search", arrays, model="bothways-en, bothways-en-static; all-MiniLM-L6-v2")
    return figures


# --- static vectors ---------------------------------------------------------------------------------------------------


def static_vectors(minutes: float = 8.0) -> dict[str, Any]:
    """Static vectors from MiniLM-L6, without text and fitted to text; their scores, and speed on one core."""
    from model2vec import StaticModel
    from scipy.stats import spearmanr

    from benchmarks.embedding_students import sts_benchmark

    scifact = BeirDataset.read(DATA / "retrieval/beir-scifact")
    first, second, gold = sts_benchmark()
    corpus = [
        *sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[:2],
        DATA / "scientific/acl-abstracts/train.parquet",
    ]
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in {"without text": [], "fitted": [*map(str, corpus), "--minutes", str(minutes)]}.items():
            target = Path(folder) / name.replace(" ", "-")
            command = [
                sys.executable,
                "-m",
                "bothways",
                "distill",
                str(minilm()),
                *options,
                "--static",
                "-o",
                str(target),
            ]
            started = time.monotonic()
            subprocess.run(command, check=True)
            seconds = time.monotonic() - started
            ours, theirs = bothways.load(target), StaticModel.from_pretrained(target)
            cosines = (ours.embed(first) * ours.embed(second)).sum(1)
            print(f"static vectors, {name}: {seconds:.0f} s, STS-B test {spearmanr(cosines, gold)[0]:.4f}; SciFact:")
            scores = measure(
                scifact,
                {"Bothways": cosine_rows(ours.embed, scifact), "model2vec": cosine_rows(theirs.encode, scifact)},
            )
            figures[name] = {"seconds": seconds, "sts": float(spearmanr(cosines, gold)[0]), "scifact": scores}
        rows = pq.read_table(corpus[-1], columns=["text"]).to_pylist()
        texts = [" ".join(row["text"].split()[start : start + 12]) for row in rows for start in (0, 12)]
        for name, embed in {"Bothways": ours.embed, "model2vec": theirs.encode}.items():
            embed(texts[:10_000])
            started = time.monotonic()
            embed(texts)
            speed = len(texts) / (time.monotonic() - started)
            print(f"  {name}: {speed:,.0f} texts of 12 words/s")
            figures[f"texts/s, {name}"] = speed
    return figures


# --- folders ----------------------------------------------------------------------------------------------------------


def write_articles(folder: Path, number: int = 1000) -> None:
    """Text files of up to 5,000 characters each."""
    rows = pq.read_table(sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[0]).to_pylist()
    articles = [row for row in rows if len(row["text"]) >= 2000][:number]
    for place, row in enumerate(articles):
        name = re.sub(r"[^\w-]+", "_", row["title"])[:60]
        (folder / f"{place:04}-{name}.txt").write_text(row["text"][:5000], encoding="utf-8")


def run_command(*arguments: str, env: Mapping[str, str]) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "bothways", *arguments], check=True, env=env, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def folder_speed() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "articles").mkdir()
        write_articles(root / "articles")
        env = {**os.environ, "BOTHWAYS_CACHE": str(root / "cache")}
        figures["first"] = run_command("search", QUERY, str(root / "articles"), env=env)
        times = [run_command("search", QUERY, str(root / "articles"), env=env) for _ in range(7)]
        figures["next"] = median(times[2:])  # files younger than two seconds are read again
        started = time.monotonic()
        run_command("index", str(root / "articles"), "-o", str(root / "store"), "--no-encoder", env=env)
        figures["index, static"] = time.monotonic() - started
        with Store(root / "store") as store:
            texts = [text for (text,) in store.database.execute("SELECT text FROM passages ORDER BY slot")]
        model = bothways.load()
        model.embed(texts[:500])
        started = time.monotonic()
        model.embed(texts)
        figures["embed, passages/s"] = len(texts) / (time.monotonic() - started)
        from bothways.search.indexing import index

        started = time.monotonic()
        index([root / "articles"], root / "store", static_model="bothways-en-static", encoder="bothways-en")
        figures["index, passages/s"] = len(texts) / (time.monotonic() - started)
        with Store(root / "store") as store:
            figures["passages"] = store.passages
            for how in ("words", "vectors", "hybrid"):
                figures[f"search, {how}, ms"] = 1e3 * median(_times(lambda how=how: store.search(QUERY, how=how)))  # type: ignore[misc]
            figures["search, hybrid, static query, ms"] = 1e3 * median(_times(lambda: store.search(QUERY, fast=True)))
    for key, value in figures.items():
        print(f"  {key:36} {value:,.3g}" if value < 100 else f"  {key:36} {value:,.0f}")
    return figures


def _times(call: Callable[[], object], number: int = 30) -> list[float]:
    call()
    times = []
    for _ in range(number):
        started = time.monotonic()
        call()
        times.append(time.monotonic() - started)
    return times


# --- a million --------------------------------------------------------------------------------------------------------


def million(number: int = 1_000_000, width: int = 256) -> dict[str, Any]:
    """A store of passages of 60 words drawn by Zipf's law, and random vectors."""
    generator, entries = np.random.default_rng(0), 200_000
    cumulated = np.cumsum(1 / (np.arange(entries) + 30.0))
    cumulated /= cumulated[-1]
    with tempfile.TemporaryDirectory() as name:
        database = Database(Path(name), create=True)
        started = time.monotonic()
        for first in range(0, number, 50_000):
            size = min(50_000, number - first)
            words_BT = np.searchsorted(cumulated, generator.random((size, 60)))
            rows_B, counts = (
                np.repeat(np.arange(first, first + size, dtype=np.uint32), 60),
                np.ones(60 * size, np.uint8),
            )
            order = np.argsort(words_BT.ravel(), kind="stable")
            terms, starts = np.unique(words_BT.ravel()[order], return_index=True)
            slots = np.split(rows_B[order], starts[1:])
            lists = {
                f"t{term}": InvertedList(np.unique(one), counts[: len(np.unique(one))])
                for term, one in zip(terms, slots, strict=True)
            }
            with database.transaction():
                rows = ((slot, 1, "a passage") for slot in range(first, first + size))
                database.connection.executemany(
                    "INSERT INTO passages (slot, file, first, last, heading, text) VALUES (?, ?, 0, 9, '', ?)", rows
                )
                database.add_batch(first, lists, np.full(size, 60, np.uint32))
                vectors = generator.normal(size=(size, width)).astype(np.float32)
                append_vectors(
                    Path(name) / "static-0.f32", first, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
                )
                database.put(slots=first + size, change=first + 1)
        database.put(static_file="static-0.f32", static_rows=number, static_dimension=width, language="en")
        database.put(static_fingerprint="random", static_model="random")
        database.execute("INSERT INTO roots VALUES (1, '/')")
        database.execute("INSERT INTO files VALUES (1, 1, 'a.txt', 0, 0, '', NULL)")
        print(f"  made in {time.monotonic() - started:.0f} s")

        class Random:
            fingerprint = "random"

            def embed(self, texts: list[str]) -> np.ndarray:
                return np.tile(vectors[:1] / np.linalg.norm(vectors[0]), (len(texts), 1))

        queries = iter(
            [" ".join(f"t{term}" for term in np.searchsorted(cumulated, generator.random(6))) for _ in range(200)]
        )
        figures: dict[str, Any] = {}
        with Store(name) as store:
            started = time.monotonic()
            store.search(next(queries), vectors=lambda space, model: Random())  # type: ignore[arg-type, return-value]
            figures["first search, ms"] = 1e3 * (time.monotonic() - started)
            for how in ("words", "vectors", "hybrid"):
                call = lambda how=how: store.search(next(queries), how=how, vectors=lambda space, model: Random())  # type: ignore[arg-type, return-value, misc]  # noqa: E731
                figures[f"{how}, ms"] = 1e3 * median(_times(call, 20))
            figures |= beside_each_other(lambda: store.search(next(queries), vectors=lambda space, model: Random()))  # type: ignore[arg-type, return-value]
        figures["memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    for key, value in figures.items():
        print(f"  {key:36} {value:,.0f}")
    return figures


def beside_each_other(search: Callable[[], object], number: int = 6, rounds: int = 5) -> dict[str, Any]:
    """Searches one after the other, and as many at once in threads, as in the server; in turn."""
    alone = []
    together = []
    firsts = []
    for _ in range(rounds):
        started = time.monotonic()
        for _ in range(number):
            search()
        alone.append(time.monotonic() - started)
        started = time.monotonic()
        with ThreadPoolExecutor(number) as pool:
            waiting = [pool.submit(search) for _ in range(number)]
            ends = sorted(time.monotonic() - started for _ in as_completed(waiting))
        together.append(ends[-1])
        firsts.append(ends[0] / ends[-1])
    return {
        "searches/s, one after the other": number / median(alone),
        f"searches/s, {number} at once": number / median(together),
        "% of the time after which the first of them has ended": 100 * median(firsts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, default=Path("build/search"))
    parser.add_argument("--minutes", type=float, default=8.0, help="of reading text to fit static vectors to")
    parser.add_argument("--passages", type=int, default=1_000_000, help="of the part million")
    parser.add_argument("--keep", action="store_true", help="write the rankings to docs/measurements")
    options = parser.parse_args()
    functions = {
        "quality": partial(quality, options.keep),
        "static": partial(static_vectors, options.minutes),
        "folder": folder_speed,
        "million": partial(million, options.passages),
    }
    figures = {}
    for part in options.parts:
        print(part)
        figures[part] = functions[part]()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "search.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
