"""Held-out figures of pre-training: perplexity of masked words beside word frequencies, next sentence with its
interval."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from bothways import metrics
from bothways.data.draws import Purpose, generator
from bothways.data.masking import MaskRule
from bothways.data.order import by_length, fill_budget
from bothways.data.pairs import make_examples
from bothways.data.store import TokenStore
from bothways.errors import InputError
from bothways.model.model import Model
from bothways.tasks.objective import losses_of, masked_batch
from bothways.tokenizer.tokenizer import Tokenizer

HELD_OUT_EXAMPLES = 256
TOKENS = 4096  # a batch


class HeldOut:
    """Fixed examples with fixed masks, and what guessing by word frequency scores on the same masks."""

    def __init__(
        self, unseen: TokenStore, seen: TokenStore | None, tokenizer: Tokenizer, length: int, *, pairs: bool,
        most: int = HELD_OUT_EXAMPLES,
    ) -> None:  # fmt: skip
        pairs = pairs and unseen.num_documents > 1
        examples = make_examples(unseen, length=length, pairs=pairs, seed=0, epoch=0)
        chosen = generator(0, Purpose.HELD_OUT).permutation(len(examples))[:most].tolist()
        sizes = [example.num_tokens for example in examples]
        rule = MaskRule.of(tokenizer)
        self.pairs = pairs
        self.batches = [
            masked_batch(unseen, examples, rows, tokenizer, rule, 0, 0)
            for rows in fill_budget(by_length(chosen, sizes), sizes, TOKENS)
        ]
        targets = torch.cat([batch.masked_labels for batch in self.batches if batch.masked_labels is not None])
        if not len(targets):
            raise InputError(f"held-out text of {unseen.num_tokens} tokens is too short: none was masked; give more")
        self.unigram_perplexity = float("nan")
        if seen is not None:
            frequencies = np.bincount(seen.ids, minlength=len(tokenizer))
            self.unigram_perplexity = metrics.perplexity(metrics.unigram_loss(frequencies, targets.numpy()))

    def measure(self, model: Model) -> dict[str, Any]:
        """Loss and perplexity (exp of the mean over masked tokens) and next-sentence accuracy with its 95 %
        interval."""
        sums: dict[str, float] = {}
        totals: dict[str, int] = {}
        right = trials = random = 0
        device = model.encoder.embeddings.words.weight.device
        with torch.inference_mode():
            for batch in (batch.to(device) for batch in self.batches):
                hidden_TH = model(batch)
                for name, (value, number) in losses_of(model, batch, hidden_TH).items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                    totals[name] = totals.get(name, 0) + number
                if "next_sentence" in model.heads and self.pairs and batch.labels is not None:
                    scores = model.text_scores("next_sentence", hidden_TH[batch.first_tokens])
                    right += int((scores.argmax(-1) == batch.labels).sum())
                    trials += len(batch)
                    random += int(batch.labels.sum())
        means = {
            name: value / max(1, totals[name]) for name, value in sums.items() if self.pairs or name == "masked_lm"
        }
        found: dict[str, Any] = {
            "loss": sum(means.values()),
            **means,
            "perplexity": metrics.perplexity(means["masked_lm"]),
        }
        if trials:
            low, high = metrics.interval(right, trials)
            found |= {"next_sentence_accuracy": right / trials, "next_sentence_interval": [low, high], "pairs": trials}
            found["chance"] = max(random, trials - random) / trials
        return found


def next_sentence_verdict(figures: Mapping[str, Any]) -> str:
    """Accuracy with its interval, called by its name while that holds 50 % (or the commoner answer's share)."""
    if "next_sentence_accuracy" not in figures:
        return "not measured (no pairs)"
    low, high = figures["next_sentence_interval"]
    verdict = " - not learned yet" if low <= max(0.5, figures["chance"]) else ""
    return f"{figures['next_sentence_accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}){verdict}"
