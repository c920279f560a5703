"""Held-out figures of pre-training: perplexity of masked words beside word frequencies, next sentence (or sentence
order) with its interval."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from bothways import metrics
from bothways.batching import sort_by_length, token_batches
from bothways.corpus.masking import MaskRule
from bothways.corpus.sampler import SECTION_TOKENS, StepRows
from bothways.corpus.sentence_pairs import PairTask, make_examples
from bothways.corpus.store import TokenStore
from bothways.errors import InputError
from bothways.pretraining.objectives import NAMES, WORDS, Name, objective_of
from bothways.rng import Purpose, generator
from bothways.tokenizer.tokenizer import Tokenizer

HELD_OUT_EXAMPLES = 256
TOKENS = 4096  # a batch


class HeldOut:
    """Fixed examples with fixed masks, and what guessing by word frequency scores on the same masks."""

    def __init__(
        self, store: TokenStore, documents: np.ndarray, tokenizer: Tokenizer, length: int, *, pairs: PairTask,
        objective: Name = "masked", frequencies: np.ndarray | None = None, most: int = HELD_OUT_EXAMPLES,
    ) -> None:  # fmt: skip
        """documents: the held-out ones of the store. frequencies [V]: of each entry in the training text.

        Tokens are masked one by one at 15 %, however a run masks, so that runs can be compared.
        """
        self.pairs: PairTask = "none" if pairs == "next" and len(documents) < 2 else pairs
        self.objective = objective_of(objective, self.pairs)
        documents = _sample(store, documents)
        examples = make_examples(
            store, documents, others=documents, length=length, pairs=self.pairs, seed=0, epoch=0,
            separators=tokenizer.backend.num_separators,
        )  # fmt: skip
        rows = generator(0, Purpose.HELD_OUT).permutation(len(examples))[:most].tolist()
        sizes = examples.sizes.tolist()
        rule = MaskRule.from_tokenizer(tokenizer)
        self.batches = [
            self.objective.batch(store, StepRows(0, 0, group, examples), group, tokenizer, rule, seed=0)
            for group in token_batches(sort_by_length(rows, sizes), sizes, TOKENS)
        ]
        targets = [batch.masked_labels.numpy() for batch in self.batches if batch.masked_labels is not None]
        if not sum(map(len, targets)):
            tokens = np.diff(store.sentences[store.documents])[documents].sum()
            raise InputError(f"held-out text of {tokens} tokens is too short: none was masked; give more")
        self.unigram_perplexity = float("nan")
        if frequencies is not None:
            loss = metrics.unigram_loss(frequencies, np.concatenate(targets))
            self.unigram_perplexity = metrics.perplexity(loss)

    def measure(self, module: nn.Module) -> dict[str, Any]:
        """Loss, perplexity (exp of the mean over the words guessed), and the accuracy on pairs or on replaced tokens,
        called by what is asked of them, with its 95 % interval."""
        sums: dict[str, float] = {}
        totals: dict[str, int] = {}
        right = trials = ones = 0
        name, device = "", next(module.parameters()).device
        with torch.inference_mode():
            for batch in (batch.to(device) for batch in self.batches):
                losses, answers = self.objective.seen(module, batch)
                for loss, (value, number) in losses.items():
                    sums[loss] = sums.get(loss, 0.0) + float(value)
                    totals[loss] = totals.get(loss, 0) + number
                for name, (said, gold) in answers.items():  # noqa: B007 (there is one name at most)
                    right += int((said == gold).sum())
                    trials += len(gold)
                    ones += int(gold.sum())
        means = {
            loss: value / max(1, totals[loss])
            for loss, value in sums.items() if self.pairs != "none" or loss != "next_sentence"
        }  # fmt: skip
        words = [mean for loss, mean in means.items() if loss in WORDS]
        found: dict[str, Any] = {
            "loss": sum(means.values()),
            **means,
            "perplexity": metrics.perplexity(sum(words) / len(words)),
        }
        if trials:
            low, high = metrics.wilson_interval(right, trials)
            found |= {f"{name}_accuracy": right / trials, f"{name}_interval": [low, high]}
            found["pairs" if name in NAMES.values() else "tokens"] = trials
            found["chance"] = max(ones, trials - ones) / trials
        return found


PLATEAU = 0.03  # so near to word frequencies' loss, by share, a run has learned little more than them


def on_plateau(figures: Mapping[str, Any], unigram_perplexity: float) -> bool:
    """Whether held-out words are guessed hardly better than by their frequencies."""
    return math.log(figures["perplexity"]) > (1 - PLATEAU) * math.log(unigram_perplexity)


def _sample(store: TokenStore, documents: np.ndarray) -> np.ndarray:
    """Random ones of the documents, sorted: as many as a section holds, which mostly is all, but two for pairs."""
    order = documents[generator(0, Purpose.HELD_OUT, 1).permutation(len(documents))]
    sizes = np.diff(store.sentences[store.documents])[order]
    number = int((sizes.cumsum() - sizes < SECTION_TOKENS).sum())
    return np.sort(order[: max(2, number)])


def next_sentence_verdict(figures: Mapping[str, Any]) -> str:
    """Accuracy on pairs (or replaced tokens) with its interval, called by its name while that holds 50 % (or the
    commoner answer's share)."""
    for name in (*NAMES.values(), "replaced"):
        if f"{name}_accuracy" in figures:
            low, high = figures[f"{name}_interval"]
            verdict = " - not learned yet" if low <= max(0.5, figures["chance"]) else ""
            if figures["chance"] == 1:
                verdict = " - all pairs are alike, so there was nothing to learn; use --pairs none"
            return f"{figures[f'{name}_accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}){verdict}"
    return "not measured (no pairs)"
