"""An objective of pre-training: masked words, whose loss counts twice."""

from bothways.training.pretraining.objectives import PretrainingObjective


class DoubledWords(PretrainingObjective):
    def losses(self, module, batch, outputs):
        losses = super().losses(module, batch, outputs)
        total, count = losses.pop("masked_lm")
        return {**losses, "doubled": (2 * total, count)}

    def counts(self, batch):
        counts = super().counts(batch)
        return {**counts, "doubled": counts.pop("masked_lm")}
