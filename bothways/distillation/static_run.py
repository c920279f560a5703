"""`bothways distill MODEL --static`: static vectors from an encoder, with or without text to fit them to."""

import random
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from bothways.checkpoint.checkpoint import check_target
from bothways.corpus.documents import Corpus
from bothways.corpus.encode import sentences
from bothways.distillation.static import (
    count_matrix,
    fit_rows,
    principal_components,
    sif_weights,
    vocabulary_vectors,
    zipf_frequencies,
)
from bothways.errors import InputError, format_count
from bothways.inference.fingerprint import vector_space
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.linear.static_vectors import CONFIG, StaticVectors, VectorTable, unknown_ids, write_static
from bothways.log import ProgressBar, logger
from bothways.settings.distill import Distill

MINUTES = 8.0  # of reading text with the encoder
ENCODED = 2048  # texts at a time
FEWEST_TEXTS = 100
LONGEST_TEXT = 600  # characters of a paragraph
RESERVOIR = 50_000  # texts among which the next ones are drawn


def run_static(settings: Distill) -> dict[str, Any]:
    """Write static vectors. Returns their directory, sizes, and the number of texts that they were fitted to."""
    check_target(settings.out, holds=CONFIG)
    started = time.monotonic()
    model = load(settings.teacher, device=settings.device)
    tokenizer, unknown = model.tokenizer, unknown_ids(model.tokenizer)
    logger.info(f"reading the {len(tokenizer):,} entries of the vocabulary, each alone")
    alone_VH = vocabulary_vectors(model)
    weights_V1 = sif_weights(zipf_frequencies(tokenizer.tokens))[:, None]
    facts: dict[str, Any] = {"base_model": str(settings.teacher)}
    if settings.corpus:
        rows_VH, facts["fitted_texts"], facts["cosine"] = _fitted(
            settings, model, ((alone_VH - alone_VH.mean(0)) * weights_V1).numpy(), unknown
        )
    else:
        dimension = min(settings.dimensions or 256, alone_VH.shape[1])
        rows_VH = (principal_components(alone_VH, dimension) * weights_V1).numpy()
    if rows_VH.shape == alone_VH.shape and settings.corpus:
        facts["space"] = vector_space(model)
    rows_VH[unknown] = 0
    vectors = StaticVectors(tokenizer, VectorTable(rows_VH), unknown=unknown, facts=facts)
    write_static(vectors, settings.out, card=_card(facts, vectors.dimension))
    seconds = time.monotonic() - started
    return {"out": str(settings.out), "size": vectors.dimension, "entries": len(tokenizer), "seconds": seconds, **facts}


def _fitted(
    settings: Distill, model: Predictor, start_VH: np.ndarray, unknown: list[int]
) -> tuple[np.ndarray, int, float]:
    """Rows fitted to the encoder's vectors of texts; the number of texts; the mean cosine with their vectors."""
    corpus = Corpus(settings.corpus, settings.documents, settings.text_column, settings.on_error, settings.encoding)
    texts: list[str] = []
    vectors: list[np.ndarray] = []
    seconds = 60 * (settings.minutes or MINUTES)
    started = time.monotonic()
    parts = sample_texts(corpus.documents(), settings.language, settings.seed)
    with ProgressBar("encoding texts", None) as bar:
        while (block := [*islice(parts, ENCODED)]) and time.monotonic() - started < seconds:
            texts += block
            vectors.append(model.embed(block))
            bar.update(len(texts), f"{len(texts) / (time.monotonic() - started):,.0f} texts/s")
    if len(texts) < FEWEST_TEXTS:
        raise InputError(
            f"corpus has {format_count(len(texts), 'text')}, expected at least {FEWEST_TEXTS} to fit static vectors; "
            "name more text, or none"
        )
    logger.info(f"fitting the rows to {len(texts):,} texts")
    skipped, ids = set(unknown), model.tokenizer.ids
    matrix_NV = count_matrix(([one for one in ids(text) if one not in skipped] for text in texts), len(start_VH))
    targets_NH = np.concatenate(vectors)
    guess_NH = matrix_NV @ start_VH
    start_VH *= np.float32((guess_NH * targets_NH).sum() / max((guess_NH**2).sum(), 1e-30))
    rows_VH = fit_rows(matrix_NV, targets_NH, start_VH)
    fitted_NH = matrix_NV @ rows_VH
    cosines_N = (fitted_NH * targets_NH).sum(1) / np.maximum(np.linalg.norm(fitted_NH, axis=1), 1e-30)
    if settings.dimensions and settings.dimensions < rows_VH.shape[1]:
        # The directions in which the vectors of texts differ most, with their mean kept.
        _, basis_HH = np.linalg.eigh(targets_NH.T @ targets_NH)
        rows_VH = rows_VH @ basis_HH[:, ::-1][:, : settings.dimensions]
    return np.ascontiguousarray(rows_VH, np.float32), len(texts), round(float(cosines_N.mean()), 4)


def sample_texts(documents: Iterable[str], language: str, seed: int) -> Iterator[str]:
    """Texts of all lengths from documents, in random order within a reservoir: paragraphs, sentences, and short runs of
    words as people type them to search."""
    generator = random.Random(seed)
    reservoir: list[str] = []
    for text in _parts(documents, language, generator):
        if len(reservoir) < RESERVOIR:
            reservoir.append(text)
            continue
        place = generator.randrange(RESERVOIR)
        reservoir[place], text = text, reservoir[place]
        yield text
    generator.shuffle(reservoir)
    yield from reservoir


def _parts(documents: Iterable[str], language: str, generator: random.Random) -> Iterator[str]:
    for document in documents:
        for line in filter(str.strip, document.split("\n")):
            kind = generator.random()
            if kind < 0.35 or len(line) < 80:
                yield line[:LONGEST_TEXT].strip()
                continue
            parts = [*sentences(line, language)]
            sentence = generator.choice(parts).strip() if parts else line
            words = sentence.split()
            if kind < 0.8 or len(words) < 4:
                yield sentence
            else:
                first = generator.randrange(len(words) - 2)
                yield " ".join(words[first : first + generator.randint(2, 9)])


def _card(facts: dict[str, Any], size: int) -> str:
    fitted = f", fitted to its vectors of {facts['fitted_texts']:,} texts" if "fitted_texts" in facts else ""
    return (
        f"---\nlibrary_name: bothways\ntags: [static-embeddings, sentence-transformers, model2vec]\n---\n\n"
        f"# Static vectors of size {size}\n\nMade with `bothways distill --static` from {facts['base_model']}{fitted}. "
        "Read them with `bothways.load`, `model2vec.StaticModel.from_pretrained` or "
        "`sentence_transformers.SentenceTransformer`.\n"
    )
