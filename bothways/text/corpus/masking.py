"""Masked language modeling (MLM): masking of tokens, whole words, or spans of words.

Sources: Devlin 2018, section 3.1, task 1; spans: Joshi 2020, section 3.1. 80 % of the chosen tokens become [MASK], 10 %
random ordinary entries and 10 % stay, drawn for each token or once for a whole span. Letters: N texts, T tokens, P of
them ordinary, in R runs between special ones, W words, M masked tokens, V vocabulary entries.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from bothways.base.rng import Purpose, fold_in, make_keys, uniform
from bothways.text.batch import Batch
from bothways.text.tokenizer.tokenizer import Tokenizer

MaskUnit = Literal["tokens", "words", "spans"]
CONTINUE = 0.8  # probability of one more word in a span: 3.8 words on average
LONGEST = 10  # words of a span


@dataclass(frozen=True)
class MaskRule:
    """What to mask and how often, with the properties of vocabulary entries that masking needs.

    rate: share of the ordinary tokens.
    kind: the unit that is masked.
    mask_id: the id of [MASK].
    ordinary_ids: all entries except special tokens.
    is_ordinary [V]: the same as a mask.
    continues_word [V]: True for pieces like `##ing`.
    """

    rate: float
    kind: MaskUnit
    mask_id: int
    ordinary_ids: np.ndarray
    is_ordinary: np.ndarray
    continues_word: np.ndarray

    @staticmethod
    def from_tokenizer(tokenizer: Tokenizer, rate: float = 0.15, kind: MaskUnit = "tokens") -> "MaskRule":
        is_ordinary = np.ones(len(tokenizer), bool)
        is_ordinary[list(tokenizer.special_ids)] = False

        is_continuation = tokenizer.backend.is_continuation
        continuing_ids = [index for token, index in tokenizer.vocab.items() if is_continuation(token)]
        continues_word = np.zeros(len(tokenizer), bool)
        continues_word[continuing_ids] = True

        return MaskRule(
            rate=rate,
            kind=kind,
            mask_id=tokenizer.mask_id,
            ordinary_ids=np.flatnonzero(is_ordinary),
            is_ordinary=is_ordinary,
            continues_word=continues_word,
        )


def mask_tokens(
    batch: Batch,
    rule: MaskRule,
    *,
    seed: int,
    example_ids: np.ndarray,
) -> Batch:
    """The batch with masked input ids, and masked_positions, masked_labels (original ids) and masked_draws. [M]

    batch: the batch, on the CPU.
    rule: what to mask and how often.
    seed: of the draws.
    example_ids [N, 3]: (epoch, section, row) of each text. The masks of a text depend only on these, the seed and the
    rule, not on the rest of the batch.
    """
    ids_T = batch.input_ids.numpy()
    positions_T = batch.position_ids.numpy()

    # Draws are hashes of keys: 32 texts of 128 tokens are masked in 0.28 ms, while a numpy generator per text would
    # take 0.55 ms for the generators alone (docs/LOG.md).
    texts_N = make_keys(seed, Purpose.MASK, *example_ids.T)
    keys_T = fold_in(np.repeat(texts_N, batch.lengths.numpy()), positions_T)

    # Special tokens separate words.
    ordinary_P = np.flatnonzero(rule.is_ordinary[ids_T])
    begins_run_P = (np.diff(ordinary_P, prepend=-2) > 1) | (positions_T[ordinary_P] == 0)
    begins_word_P = begins_run_P | ~rule.continues_word[ids_T[ordinary_P]] | (rule.kind == "tokens")
    first_W = ordinary_P[begins_word_P]
    word_P = begins_word_P.cumsum() - 1

    # The leader of a masked token is the token whose key decides what becomes of it.
    if rule.kind == "spans":
        words_R = np.bincount(begins_run_P.cumsum()[begins_word_P] - 1)
        leader_W = draw_spans(words_R, keys_T[first_W], rule.rate)
        masked_P = leader_W[word_P] >= 0
        leader_M = first_W[leader_W[word_P[masked_P]]]
    else:
        is_masked_W = uniform(keys_T[first_W], 1)[0] < rule.rate
        masked_P = is_masked_W[word_P]
        leader_M = ordinary_P[masked_P]

    masked_M = ordinary_P[masked_P]
    labels_M = ids_T[masked_M]
    role_M = uniform(keys_T[leader_M], 2)[1]
    entry_M, draw_M = uniform(keys_T[masked_M], 4)[2:]
    others_M = rule.ordinary_ids[(entry_M * len(rule.ordinary_ids)).astype(np.int64)]

    # 80 % [MASK], 10 % another entry, 10 % as they are.
    hidden_T = ids_T.copy()
    hidden_T[masked_M] = np.where(role_M < 0.8, rule.mask_id, np.where(role_M < 0.9, others_M, labels_M))

    return replace(
        batch,
        input_ids=torch.from_numpy(hidden_T),
        masked_positions=torch.from_numpy(masked_M),
        masked_labels=torch.from_numpy(labels_M),
        masked_draws=torch.from_numpy(draw_M),
    )


def draw_spans(words_R: np.ndarray, keys_W: np.ndarray, rate: float) -> np.ndarray:
    """For each word, the index of the word whose draws made its span; -1 outside spans. [W]

    words_R: the number of words in each run.
    keys_W: the key of each word.
    rate: share of the words to cover.

    Every word draws a span length. These spans are taken in order until `rate` of the words is covered; the last one is
    taken with the probability that makes the rate exact on average. Shuffling the spans with the remaining words places
    them uniformly and without overlap.
    """
    length_W, _, _, take_W, order_W = uniform(keys_W, 5)
    run_W = np.repeat(np.arange(len(words_R)), words_R)
    words_W = np.repeat(words_R, words_R)
    first_W = np.repeat(words_R.cumsum() - words_R, words_R)
    number_W = np.arange(len(run_W))

    # The geometric distribution up to LONGEST, by its inverse.
    sizes_W = 1 + (np.log1p(-length_W * (1 - CONTINUE**LONGEST)) / np.log(CONTINUE)).astype(np.int64)
    before_W = sizes_W.cumsum() - sizes_W
    before_W -= before_W[first_W]
    sizes_W = np.minimum(sizes_W, words_W - before_W)
    taken_W = take_W * sizes_W < rate * words_W - before_W

    # The spans taken, and single words for the rest.
    items_R = words_R - np.bincount(run_W, taken_W * (sizes_W - 1), len(words_R)).astype(np.int64)
    sizes_W = np.where(taken_W, sizes_W, number_W - first_W < items_R[run_W])

    order = np.argsort(run_W + order_W)
    return np.repeat(np.where(taken_W, number_W, -1)[order], sizes_W[order])
