"""Held-out evaluation of pre-training: perplexity and next-sentence accuracy."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bothways.base.errors import InputError, flag
from bothways.base.rng import Purpose, generator
from bothways.measure import metrics
from bothways.text.batch import Batch
from bothways.text.batching import sort_by_length, token_batches
from bothways.text.corpus.masking import MaskRule
from bothways.text.corpus.sampler import StepRows, sample_documents
from bothways.text.corpus.sentence_pairs import PairTask, make_examples
from bothways.text.corpus.token_store import TokenStore
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining import objectives

HELD_OUT_EXAMPLES = 256
TOKENS = 4096  # a batch
PLATEAU = 0.03  # a loss this close (relative) to the loss of word frequencies counts as not learned


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
        """
        store: the held-out text.
        documents: indices of held-out documents.
        tokenizer: whose ids the store has.
        length: most tokens of an example.
        pairs: the task of sentence pairs, if any.
        objective: its name, or a function that builds it.
        frequencies: token counts of the training text, [V].
        most: number of examples.

        15 % of the tokens are masked, independently of each other and of the run's masking, so that runs are
        comparable.
        """
        # A text of one document has no sentence of another one, so it has no random next sentence.
        self.pairs: PairTask = "none" if pairs == "next" and len(documents) < 2 else pairs
        if callable(objective):
            self.objective = objective(self.pairs)
        else:
            self.objective = objectives.build_objective(objective, self.pairs)

        documents = sample_documents(store, documents)
        examples = make_examples(
            store,
            documents,
            others=documents,
            length=length,
            pairs=self.pairs,
            seed=0,
            epoch=0,
            separators=tokenizer.backend.num_separators,
        )
        rows = generator(0, Purpose.HELD_OUT).permutation(len(examples))[:most].tolist()
        sizes = examples.sizes.tolist()
        rule = MaskRule.from_tokenizer(tokenizer)
        self.batches: list[Batch] = []
        for group in token_batches(sort_by_length(rows, sizes), sizes, TOKENS):
            step = StepRows(epoch=0, section=0, rows=group, examples=examples)
            batch = objectives.example_batch(store, step, step.rows, tokenizer)
            self.batches.append(self.objective.mask(batch, step, step.rows, rule, seed=0))

        targets = [batch.masked_labels.numpy() for batch in self.batches if batch.masked_labels is not None]
        if "masked_words" in self.objective.heads and not sum(map(len, targets)):
            tokens = np.diff(store.sentences[store.documents])[documents].sum()
            raise InputError(f"held-out text of {tokens} tokens is too short: no token was masked; add held-out text")

        self.unigram_perplexity = float("nan")
        if frequencies is not None and targets:
            unigram_loss = metrics.unigram_loss(frequencies, np.concatenate(targets))
            self.unigram_perplexity = metrics.perplexity(unigram_loss)

    def measure(self, module: nn.Module) -> dict[str, Any]:
        """Metrics: losses, perplexity of masked words, and accuracy on sentence pairs or replaced tokens with its 95 %
        interval."""
        sums: dict[str, float] = {}
        totals: dict[str, int] = {}
        binary = BinaryTask()
        device = next(module.parameters()).device
        with torch.inference_mode():
            for batch in (batch.to(device) for batch in self.batches):
                outputs = self.objective.forward(module, batch)
                losses = self.objective.losses(module, batch, outputs)
                predictions = self.objective.predictions(module, batch, outputs)
                for loss, (value, count) in losses.items():
                    sums[loss] = sums.get(loss, 0.0) + float(value)
                    totals[loss] = totals.get(loss, 0) + int(count)
                for name, (predicted, gold) in predictions.items():
                    binary.add(name, predicted, gold)

        # A model that was trained on pairs has the head, and a loss of it, also where no pairs are measured.
        means = {
            loss: value / max(1, totals[loss])
            for loss, value in sums.items()
            if self.pairs != "none" or loss != "next_sentence"
        }
        words = [mean for loss, mean in means.items() if loss in objectives.WORD_LOSSES]
        figures: dict[str, Any] = {"loss": sum(means.values()), **means, **self.objective.figures(means)}
        if words:
            figures["perplexity"] = metrics.perplexity(sum(words) / len(words))
        if binary.trials:
            figures |= binary.figures()
        return figures


@dataclass
class BinaryTask:
    """Counts of a binary task on held-out text: sentence pairs or replaced tokens. There is one at most."""

    name: str = ""
    correct: int = 0
    trials: int = 0
    positives: int = 0

    def add(self, name: str, predicted: Tensor, gold: Tensor) -> None:
        """Count the labels of a batch."""
        self.name = name
        self.correct += int((predicted == gold).sum())
        self.trials += len(gold)
        self.positives += int(gold.sum())

    def figures(self) -> dict[str, Any]:
        """Accuracy with its 95 % interval, the number of trials, and the accuracy of the more frequent label."""
        low, high = metrics.wilson_interval(self.correct, self.trials)
        unit = "pairs" if self.name in objectives.PAIR_TASK_NAMES.values() else "tokens"
        return {
            f"{self.name}_accuracy": self.correct / self.trials,
            f"{self.name}_accuracy_interval": [low, high],
            unit: self.trials,
            "chance": max(self.positives, self.trials - self.positives) / self.trials,
        }


def on_plateau(figures: Mapping[str, Any], unigram_perplexity: float) -> bool:
    """Whether the model is hardly better than word frequencies alone; False if it predicts no words."""
    if "perplexity" not in figures:
        return False
    return math.log(figures["perplexity"]) > (1 - PLATEAU) * math.log(unigram_perplexity)


def next_sentence_verdict(figures: Mapping[str, Any]) -> str:
    """Accuracy on sentence pairs or replaced tokens as text, with a note if its interval includes chance."""
    for name in (*objectives.PAIR_TASK_NAMES.values(), "replaced"):
        if f"{name}_accuracy" in figures:
            low, high = figures[f"{name}_accuracy_interval"]
            verdict = ""
            if figures["chance"] == 1:
                verdict = f" - all pairs have the same label, so there is nothing to learn; use {flag('pairs', 'none')}"
            elif low <= max(0.5, figures["chance"]):
                verdict = " - not learned yet"
            return f"{figures[f'{name}_accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}){verdict}"
    return "not measured (no pairs)"
