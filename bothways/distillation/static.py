"""Static vectors from an encoder: its vectors of the vocabulary, or the rows that fit its vectors of texts best.

Without text, each entry of the vocabulary is read alone, the vectors are reduced by PCA, and frequent words weigh less
(SIF; Arora 2017). With text, the rows are fitted by ridge regression: the mean of a text's rows shall be the encoder's
vector of the text. That has a closed form, which conjugate gradients solve in a few dozen steps.

Letters: V entries of the vocabulary, N texts, H size of the encoder's vectors, D size of the static ones.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from bothways.inference.predictor import Predictor
from bothways.tasks.pooling import pool_rows, pool_windows, pooling_name
from bothways.tasks.windows import own_rows
from bothways.tokenizer.tokenizer import Encoding, TokenizedText

SIF_COEFFICIENT = 1e-4  # Arora 2017
SPECIAL = re.compile(r"\[.+\]|<.+>")
PENALTY = 0.3  # of the ridge regression, per unit of a row's difference from its start
STEPS = 20  # of conjugate gradients


def vocabulary_vectors(model: Predictor) -> Tensor:
    """The encoder's vector of each entry of its vocabulary, read alone between special tokens, float32 [V, H]."""
    encoder, tokenizer = model.backend.encoder, model.tokenizer
    kind = pooling_name("auto", model.description.pooling)
    texts = [TokenizedText(token, tokenizer, ids=[index]) for index, token in enumerate(tokenizer.tokens)]
    windows: list[list[Encoding]] = [[tokenizer.build_encoding([(text, 0, 1)])] for text in texts]
    flat = [*chain.from_iterable(windows)]
    bounds = [bound for parts in windows for bound in own_rows(parts)]
    pooled_VH = torch.from_numpy(encoder.run_vectors(flat, {}, pool_rows(kind), bounds))
    sizes_V = torch.tensor([last - first for first, last in bounds])
    return pool_windows(kind, pooled_VH, torch.arange(len(flat)), len(flat), sizes_V)


def principal_components(rows_VH: Tensor, dimension: int) -> Tensor:
    """The rows in their first principal components, without their mean, float32 [V, D]."""
    centered_VH = rows_VH - rows_VH.mean(0)
    _, vectors_HH = torch.linalg.eigh((centered_VH.T @ centered_VH).double())
    components_VH: Tensor = (centered_VH.double() @ vectors_HH.flip(1)[:, :dimension]).float()
    return components_VH


def zipf_frequencies(tokens: Sequence[str]) -> Tensor:
    """The relative frequency of each entry by Zipf's law, [V], as vocabularies list frequent words first. Special
    tokens, and the alphabets of other scripts, which BERT's vocabularies list before all words, count as the last."""
    is_late = [bool(SPECIAL.fullmatch(token)) or is_foreign_character(token) for token in tokens]
    order = sorted(range(len(tokens)), key=lambda index: (is_late[index], index))
    ranks_V = torch.empty(len(tokens))
    ranks_V[torch.tensor(order)] = torch.arange(len(tokens)).float()
    return 1 / (ranks_V + 2)


def is_foreign_character(token: str) -> bool:
    character = token.removeprefix("##")
    return len(character) == 1 and not character.isascii()


def sif_weights(frequencies_V: Tensor) -> Tensor:
    """a / (a + p) for each entry, [V]. frequencies_V: how often it occurs, in any unit."""
    return SIF_COEFFICIENT / (SIF_COEFFICIENT + frequencies_V / frequencies_V.sum())


def count_matrix(ids: Iterable[Sequence[int]], size: int) -> csr_array:
    """How often each entry is in each text, over the square root of the number of tokens: sparse, [N, V]."""
    rows = [*ids]
    sizes_N = np.array([len(row) for row in rows])
    ids_T = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes_N.sum()))
    values_T = np.repeat(1 / np.sqrt(np.maximum(sizes_N, 1)), sizes_N).astype(np.float32)
    matrix_NV = csr_array((values_T, ids_T, np.concatenate([[0], sizes_N.cumsum()])), shape=(len(rows), size))
    matrix_NV.sum_duplicates()
    return matrix_NV


def fit_rows(
    matrix_NV: csr_array, targets_NH: np.ndarray, start_VH: np.ndarray, *, penalty: float = PENALTY, steps: int = STEPS
) -> np.ndarray:
    """The rows [V, H] that minimize |X rows - targets|^2 + penalty |rows - start|^2, with X as in `count_matrix`.

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
        before_H, product_H = product_H, (residual_VH * scaled_VH).sum(0)
        direction_VH = scaled_VH + product_H / np.maximum(before_H, 1e-30) * direction_VH
    change_VH += start_VH
    return change_VH
