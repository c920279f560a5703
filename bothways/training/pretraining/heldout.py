"""Held-out evaluation of pre-training: perplexity and next-sentence accuracy."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from bothways.base.errors import InputError, flag
from bothways.base.rng import Purpose, generator
from bothways.measure import metrics
from bothways.text.batching import sort_by_length, token_batches
from bothways.text.corpus.masking import MaskRule
from bothways.text.corpus.sampler import StepRows, sample_documents
from bothways.text.corpus.sentence_pairs import PairTask, make_examples
from bothways.text.corpus.token_store import TokenStore
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining import objectives

HELD_OUT_EXAMPLES = 256
TOKENS = 4096  # a batch


class HeldOut:
    """Fixed held-out examples with fixed masks, and the perplexity of word frequencies on them as a baseline."""

    def __init__(
        self,
        store: TokenStore,
        documents: np.ndarray,
        tokenizer: Tokenizer,
        length: int,
        *,
        pairs: PairTask,
        objective: objectives.ObjectiveName | Callable[[PairTask], objectives.PretrainingObjective] = "masked",
        frequencies: np.ndarray | None = None,
        most: int = HELD_OUT_EXAMPLES,
    ) -> None:
        """documents: indices of held-out documents. objective: its name, or a function that builds it.
        frequencies [V]: token counts of the training text.

        15 % of the tokens are masked, independently of each other and of the run's masking, so that runs are
        comparable.
        """
        self.pairs: PairTask = "none" if pairs == "next" and len(documents) < 2 else pairs
        self.objective = (
            objective(self.pairs) if callable(objective) else objectives.build_objective(objective, self.pairs)
        )
        documents, separators = sample_documents(store, documents), tokenizer.backend.num_separators
        examples = make_examples(
            store, documents, others=documents, length=length, pairs=self.pairs, seed=0, epoch=0, separators=separators
        )
        rows = generator(0, Purpose.HELD_OUT).permutation(len(examples))[:most].tolist()
        sizes = examples.sizes.tolist()
        rule = MaskRule.from_tokenizer(tokenizer)
        groups = token_batches(sort_by_length(rows, sizes), sizes, TOKENS)
        self.batches = [
            self.objective.mask(
                objectives.example_batch(store, step, step.rows, tokenizer), step, step.rows, rule, seed=0
            )
            for step in (StepRows(0, 0, group, examples) for group in groups)
        ]
        targets = [batch.masked_labels.numpy() for batch in self.batches if batch.masked_labels is not None]
        if "masked_words" in self.objective.heads and not sum(map(len, targets)):
            tokens = np.diff(store.sentences[store.documents])[documents].sum()
            raise InputError(f"held-out text of {tokens} tokens is too short: no token was masked; add held-out text")
        self.unigram_perplexity = float("nan")
        if frequencies is not None and targets:
            self.unigram_perplexity = metrics.perplexity(metrics.unigram_loss(frequencies, np.concatenate(targets)))

    def measure(self, module: nn.Module) -> dict[str, Any]:
        """Metrics: losses, perplexity of masked words, and accuracy on sentence pairs or replaced tokens with its 95 %
        interval."""
        sums: dict[str, float] = {}
        totals: dict[str, int] = {}
        correct = trials = positives = 0
        name, device = "", next(module.parameters()).device
        with torch.inference_mode():
            for batch in (batch.to(device) for batch in self.batches):
                outputs = self.objective.forward(module, batch)
                losses = self.objective.losses(module, batch, outputs)
                predictions = self.objective.predictions(module, batch, outputs)
                for loss, (value, count) in losses.items():
                    sums[loss] = sums.get(loss, 0.0) + float(value)
                    totals[loss] = totals.get(loss, 0) + int(count)
                for name, (predicted, gold) in predictions.items():  # noqa: B007 (there is one name at most)
                    correct += int((predicted == gold).sum())
                    trials += len(gold)
                    positives += int(gold.sum())
        means = {
            loss: value / max(1, totals[loss])
            for loss, value in sums.items()
            if self.pairs != "none" or loss != "next_sentence"
        }
        words = [mean for loss, mean in means.items() if loss in objectives.WORD_LOSSES]
        metrics_by_name: dict[str, Any] = {"loss": sum(means.values()), **means, **self.objective.figures(means)}
        if words:
            metrics_by_name["perplexity"] = metrics.perplexity(sum(words) / len(words))
        if trials:
            low, high = metrics.wilson_interval(correct, trials)
            metrics_by_name |= {f"{name}_accuracy": correct / trials, f"{name}_accuracy_interval": [low, high]}
            metrics_by_name["pairs" if name in objectives.PAIR_TASK_NAMES.values() else "tokens"] = trials
            metrics_by_name["chance"] = max(positives, trials - positives) / trials
        return metrics_by_name


PLATEAU = 0.03  # a loss this close (relative) to that of word frequencies counts as not learned


def on_plateau(figures: Mapping[str, Any], unigram_perplexity: float) -> bool:
    """Whether the model is hardly better than word frequencies alone; False if it predicts no words."""
    return "perplexity" in figures and math.log(figures["perplexity"]) > (1 - PLATEAU) * math.log(unigram_perplexity)


def next_sentence_verdict(figures: Mapping[str, Any]) -> str:
    """Accuracy on sentence pairs or replaced tokens as text, with a note if its interval includes chance."""
    for name in (*objectives.PAIR_TASK_NAMES.values(), "replaced"):
        if f"{name}_accuracy" in figures:
            low, high = figures[f"{name}_accuracy_interval"]
            verdict = " - not learned yet" if low <= max(0.5, figures["chance"]) else ""
            if figures["chance"] == 1:
                verdict = f" - all pairs have the same label, so there is nothing to learn; use {flag('pairs', 'none')}"
            return f"{figures[f'{name}_accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}){verdict}"
    return "not measured (no pairs)"
