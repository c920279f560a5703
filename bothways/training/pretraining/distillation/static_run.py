"""`bothways distill MODEL --static`: static vectors from an encoder.

Without text, each entry of the vocabulary is read alone, the vectors are reduced by PCA, and frequent words weigh less
(SIF; Arora 2017). With text, the rows are fitted by ridge regression: the mean of a text's rows shall be the encoder's
vector of the text. That has a closed form, which conjugate gradients solve in a few dozen steps.

Letters: V entries of the vocabulary, N texts, H size of the encoder's vectors, D size of the static ones.
"""

import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from bothways.base.errors import InputError, format_count
from bothways.base.io import check_target
from bothways.base.log import logger
from bothways.base.progress import ProgressBar
from bothways.base.results import Facts
from bothways.inference.fingerprint import vector_space
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.model.linear.static_vectors import CONFIG, StaticVectors, VectorTable, unknown_ids, write_static
from bothways.settings.pretrain import Distill
from bothways.tasks.pooling import pooling_name
from bothways.text.corpus.documents import Corpus
from bothways.text.corpus.encode import sentences
from bothways.text.token_windows import SpecialTokens, TokenWindows

MINUTES = 8.0  # of reading text with the encoder
ENCODED = 2048  # texts at a time
FEWEST_TEXTS = 100
LONGEST_TEXT = 600  # characters of a paragraph
RESERVOIR = 50_000  # texts among which the next ones are drawn
SIF_COEFFICIENT = 1e-4  # Arora 2017
SPECIAL = re.compile(r"\[.+\]|<.+>")
PENALTY = 0.3  # of the ridge regression, per unit of a row's difference from its start
STEPS = 20  # of conjugate gradients


class StaticFacts(Facts):
    """Facts about static vectors that were made: their directory, sizes, and the texts that they were fitted to."""

    def lines(self) -> Iterator[str]:
        fitted = f", fitted to {self['fitted_texts']:,} texts" if "fitted_texts" in self else ""
        entries = f"{self['entries']:,} static vectors of size {self['size']}{fitted}"
        yield f"{entries}, in {self['out']} ({self['seconds']:.0f} s)"


def run_static(settings: Distill) -> StaticFacts:
    """Write static vectors. Returns their directory, sizes, and the number of texts that they were fitted to."""
    check_target(settings.out, holds=CONFIG)
    started = time.monotonic()
    model = load(settings.teacher, device=settings.device)
    tokenizer = model.tokenizer
    unknown = unknown_ids(tokenizer)
    logger.info(f"reading the {len(tokenizer):,} entries of the vocabulary, each alone")
    alone_VH = vocabulary_vectors(model)
    weights_V1 = sif_weights(zipf_frequencies(tokenizer.tokens))[:, None]

    facts: dict[str, Any] = {"base_model": str(settings.teacher)}
    if settings.corpus:
        start_VH = (alone_VH - alone_VH.mean(0)) * weights_V1
        fitted = _fit(settings, model, start_VH.numpy(), unknown)
        rows_VH = fitted.rows_VH
        facts["fitted_texts"] = fitted.num_texts
        facts["cosine"] = fitted.cosine
    else:
        dimension = min(settings.dimensions or 256, alone_VH.shape[1])
        rows_VH = (principal_components(alone_VH, dimension) * weights_V1).numpy()

    # Rows that were fitted at the encoder's size have its directions, so their vectors may be compared with its own.
    if settings.corpus and rows_VH.shape == alone_VH.shape:
        facts["space"] = vector_space(model)
    rows_VH[unknown] = 0
    vectors = StaticVectors(tokenizer, VectorTable(rows_VH), unknown=unknown, facts=facts)
    write_static(vectors, settings.out, card=_card(facts, vectors.dimension))
    return StaticFacts(
        out=str(settings.out),
        size=vectors.dimension,
        entries=len(tokenizer),
        seconds=time.monotonic() - started,
        **facts,
    )


@dataclass(frozen=True, eq=False)
class FittedRows:
    """Rows of the vocabulary that were fitted to vectors of texts.

    rows_VH: float32, perhaps in fewer dimensions.
    num_texts: that they were fitted to.
    cosine: mean cosine of the vectors of these texts with the encoder's.
    """

    rows_VH: np.ndarray
    num_texts: int
    cosine: float


def _fit(settings: Distill, model: Predictor, start_VH: np.ndarray, unknown: list[int]) -> FittedRows:
    """Rows fitted to the encoder's vectors of texts. start_VH: scaled in place. unknown: ids that are left out."""
    texts, targets_NH = _encode_texts(settings, model)
    logger.info(f"fitting the rows to {len(texts):,} texts")
    left_out = set(unknown)
    ids = ([index for index in model.tokenizer.ids(text) if index not in left_out] for text in texts)
    matrix_NV = count_matrix(ids, len(start_VH))

    # Scaled by least squares, so that the penalty holds the rows to vectors as long as the targets.
    guess_NH = matrix_NV @ start_VH
    start_VH *= np.float32((guess_NH * targets_NH).sum() / max((guess_NH**2).sum(), 1e-30))
    rows_VH = fit_rows(matrix_NV, targets_NH, start_VH)

    fitted_NH = matrix_NV @ rows_VH
    cosines_N = (fitted_NH * targets_NH).sum(1) / np.maximum(np.linalg.norm(fitted_NH, axis=1), 1e-30)
    if settings.dimensions and settings.dimensions < rows_VH.shape[1]:
        # The directions in which the vectors of texts differ most, with their mean kept.
        _, basis_HH = np.linalg.eigh(targets_NH.T @ targets_NH)
        rows_VH = rows_VH @ basis_HH[:, ::-1][:, : settings.dimensions]
    return FittedRows(
        rows_VH=np.ascontiguousarray(rows_VH, np.float32),
        num_texts=len(texts),
        cosine=round(float(cosines_N.mean()), 4),
    )


def _encode_texts(settings: Distill, model: Predictor) -> tuple[list[str], np.ndarray]:
    """Texts of the corpus, as many as the encoder reads in its minutes, and their vectors [N, H]."""
    corpus = Corpus(
        settings.corpus,
        settings.documents,
        settings.text_column,
        on_error=settings.on_error,
        encoding=settings.encoding,
    )
    seconds = 60 * (settings.minutes or MINUTES)
    started = time.monotonic()
    sampled = sample_texts(corpus.documents(), settings.language, settings.seed)
    texts: list[str] = []
    vectors: list[np.ndarray] = []
    with ProgressBar("encoding texts", None) as bar:
        while True:
            block = list(islice(sampled, ENCODED))
            if not block or time.monotonic() - started >= seconds:
                break
            texts += block
            vectors.append(model.embed(block))
            bar.update(len(texts), f"{len(texts) / (time.monotonic() - started):,.0f} texts/s")

    if len(texts) < FEWEST_TEXTS:
        raise InputError(
            f"corpus has {format_count(len(texts), 'text')}, expected at least {FEWEST_TEXTS} to fit static vectors; "
            "name more text, or none"
        )
    return texts, np.concatenate(vectors)


def sample_texts(documents: Iterable[str], language: str, seed: int) -> Iterator[str]:
    """Texts of all lengths from documents, in random order within a reservoir: paragraphs, sentences, and short runs of
    words as people type them to search.

    documents: whose paragraphs are lines.
    language: for the division into sentences.
    seed: of the choice and the order.
    """
    generator = random.Random(seed)
    reservoir: list[str] = []
    for text in _parts(documents, language, generator):
        if len(reservoir) < RESERVOIR:
            reservoir.append(text)
            continue
        index = generator.randrange(RESERVOIR)
        reservoir[index], text = text, reservoir[index]
        yield text
    generator.shuffle(reservoir)
    yield from reservoir


def _parts(documents: Iterable[str], language: str, generator: random.Random) -> Iterator[str]:
    """One text of each paragraph."""
    for document in documents:
        for line in filter(str.strip, document.split("\n")):
            kind = generator.random()
            if kind < 0.35 or len(line) < 80:
                yield line[:LONGEST_TEXT].strip()
                continue

            parts = list(sentences(line, language))
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


def vocabulary_vectors(model: Predictor) -> Tensor:
    """The encoder's vector of each entry of its vocabulary, read alone between special tokens, float32 [V, H]."""
    tokenizer = model.tokenizer
    kind = pooling_name("auto", model.description.pooling)
    ids_V = np.arange(len(tokenizer.tokens), dtype=np.int32)
    # Entry v is the text ids[v : v + 1].
    ranges_V2 = np.stack([ids_V, ids_V + 1], axis=1).astype(np.int64)
    windows = TokenWindows.of_ranges(ids_V, ranges_V2, SpecialTokens.of(tokenizer))
    return torch.from_numpy(model.torch_encoder.pooled_texts(windows, kind, {}))


def principal_components(rows_VH: Tensor, dimension: int) -> Tensor:
    """The rows in their first principal components, without their mean, float32 [V, D]."""
    centered_VH = rows_VH - rows_VH.mean(0)
    _, vectors_HH = torch.linalg.eigh((centered_VH.T @ centered_VH).double())
    components_VH: Tensor = (centered_VH.double() @ vectors_HH.flip(1)[:, :dimension]).float()
    return components_VH


def zipf_frequencies(tokens: Sequence[str]) -> Tensor:
    """The relative frequency of each entry by Zipf's law, [V], as vocabularies list frequent words first. Special
    tokens, and the alphabets of other scripts, which BERT's vocabularies list before all words, count as the last."""
    is_late = []
    for token in tokens:
        plain = token.removeprefix("##")
        is_foreign = len(plain) == 1 and not plain.isascii()
        is_late.append(bool(SPECIAL.fullmatch(token)) or is_foreign)
    order = sorted(range(len(tokens)), key=lambda index: (is_late[index], index))
    ranks_V = torch.empty(len(tokens))
    ranks_V[torch.tensor(order)] = torch.arange(len(tokens)).float()
    return 1 / (ranks_V + 2)


def sif_weights(frequencies_V: Tensor) -> Tensor:
    """a / (a + p) for each entry, [V]. frequencies_V: how often it occurs, in any unit."""
    return SIF_COEFFICIENT / (SIF_COEFFICIENT + frequencies_V / frequencies_V.sum())


def count_matrix(ids: Iterable[Sequence[int]], size: int) -> csr_array:
    """How often each entry is in each text, over the square root of the number of tokens: sparse, [N, V]."""
    rows = [*ids]
    sizes_N = np.array([len(row) for row in rows])
    ids_T = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes_N.sum()))
    values_T = np.repeat(1 / np.sqrt(np.maximum(sizes_N, 1)), sizes_N).astype(np.float32)
    bounds = np.concatenate([[0], sizes_N.cumsum()])
    matrix_NV = csr_array((values_T, ids_T, bounds), shape=(len(rows), size))
    matrix_NV.sum_duplicates()
    return matrix_NV


def fit_rows(
    matrix_NV: csr_array, targets_NH: np.ndarray, start_VH: np.ndarray, *, penalty: float = PENALTY, steps: int = STEPS
) -> np.ndarray:
    """The rows [V, H] that minimize |X rows - targets|^2 + penalty |rows - start|^2.

    matrix_NV: X, as in `count_matrix`.
    targets_NH: vectors of the texts.
    start_VH: rows to start from, and to stay near.
    penalty: weight of the distance from the start.
    steps: of conjugate gradients.

    Solved by conjugate gradients for all columns at once, preconditioned by the diagonal.
    """
    matrix_VN = matrix_NV.T.tocsr()
    residual_VH = matrix_VN @ (targets_NH - matrix_NV @ start_VH)
    scale_V1 = 1 / (matrix_VN.power(2).sum(1) + np.float32(penalty))[:, None].astype(np.float32)

    change_VH = np.zeros_like(start_VH)
    direction_VH = scale_V1 * residual_VH
    product_H = (residual_VH * direction_VH).sum(0)
    for _ in range(steps):
        image_VH = matrix_VN @ (matrix_NV @ direction_VH) + np.float32(penalty) * direction_VH
        length_H = product_H / np.maximum((direction_VH * image_VH).sum(0), 1e-30)
        change_VH += length_H * direction_VH
        residual_VH -= length_H * image_VH

        scaled_VH = scale_V1 * residual_VH
        before_H = product_H
        product_H = (residual_VH * scaled_VH).sum(0)
        direction_VH = scaled_VH + product_H / np.maximum(before_H, 1e-30) * direction_VH
    change_VH += start_VH
    return change_VH
