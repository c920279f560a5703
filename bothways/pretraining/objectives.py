"""What else than BERT's own task an encoder can be pre-trained on. One class each: which heads it needs, what is
trained (a model, or one with parts that only training needs), how a batch is made and what is lost.

Letters: T tokens, M places to be guessed, N texts, H hidden, E embedding size, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.corpus.masking import MaskRule
from bothways.corpus.sampler import StepRows
from bothways.corpus.sentence_pairs import PairTask, to_batch
from bothways.corpus.store import TokenStore
from bothways.model.heads import MaskedLMHead
from bothways.model.model import Model
from bothways.pretraining import objective
from bothways.pretraining.modules import Boundary, Enhanced, Replacing
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.losses import Loss, masked_lm_loss

Name = Literal["masked", "boundary", "enhanced", "replaced", "forward", "halves"]
Answers = Mapping[str, tuple[Tensor, Tensor]]  # of questions with two answers: what was said, what is right
WORDS = ("masked_lm", "next_word", "previous_word")  # losses that are log-perplexities of words
REPLACED_WEIGHT = 50.0  # Clark 2020, appendix A


class Objective:
    """BERT's: masked words, and next sentences or their order (Devlin 2018, section 3.1)."""

    def __init__(self, pairs: PairTask = "none") -> None:
        self.pairs: PairTask = pairs

    @property
    def heads(self) -> dict[str, int]:
        """Those of the model that is saved."""
        return {"masked_words": 0, **({"next_sentence": 2} if self.pairs != "none" else {})}

    def module(self, model: Model, seed: int) -> nn.Module:
        """What is trained, with the model in it. The seed is for weights that are not the model's."""
        return model

    def batch(
        self, store: TokenStore, step: StepRows, rows: Sequence[int], tokenizer: Tokenizer, rule: MaskRule, *,
        seed: int, rate: float | None = None,
    ) -> Batch:  # fmt: skip
        return objective.masked_batch(store, step, rows, tokenizer, rule, seed=seed, rate=rate)

    def counts(self, batch: Batch) -> dict[str, int]:
        return objective.counts(batch)

    def losses(self, module: nn.Module, batch: Batch) -> dict[str, Loss]:
        return self.seen(module, batch)[0]

    def seen(self, module: nn.Module, batch: Batch) -> tuple[dict[str, Loss], Answers]:
        """The losses, and for held-out figures the answers."""
        assert isinstance(module, Model)
        hidden_TH = module(batch)
        losses = objective.losses_of(module, batch, hidden_TH)
        if "next_sentence" not in module.heads or self.pairs == "none" or batch.labels is None:
            return losses, {}
        scores_N2 = module.text_scores("next_sentence", module.text_states(hidden_TH, batch))
        return losses, {NAMES[self.pairs]: (scores_N2.argmax(-1), batch.labels)}


NAMES = {"next": "next_sentence", "order": "sentence_order"}


class SpanBoundary(Objective):
    """Each masked word is guessed a second time from the two tokens around its run of masked ones (Joshi 2020, section
    3.2)."""

    def module(self, model: Model, seed: int) -> nn.Module:
        return Boundary(model, seed)

    def counts(self, batch: Batch) -> dict[str, int]:
        found = super().counts(batch)
        return {**found, "boundary": found["masked_lm"]}

    def seen(self, module: nn.Module, batch: Batch) -> tuple[dict[str, Loss], Answers]:
        assert isinstance(module, Boundary) and batch.masked_positions is not None and batch.masked_labels is not None
        model = module.model
        hidden_TH = model(batch)
        losses = objective.losses_of(model, batch, hidden_TH)
        x_ME = module.head(hidden_TH, batch.masked_positions)
        words, table_VE = model.heads["masked_words"], model.encoder.embeddings.words.weight
        assert isinstance(words, MaskedLMHead)
        return {**losses, "boundary": masked_lm_loss(x_ME, table_VE, words.bias, batch.masked_labels)}, {}


class EnhancedDecoder(Objective):
    """Masked words, guessed by a decoder that knows where in its text a word stands (He 2021, section 3.2)."""

    def module(self, model: Model, seed: int) -> nn.Module:
        return Enhanced(model, seed)

    def seen(self, module: nn.Module, batch: Batch) -> tuple[dict[str, Loss], Answers]:
        assert isinstance(module, Enhanced)
        return objective.losses_of(module.model, batch, module(batch)), {}


class ReplacedTokensHead(Objective):
    """A small generator fills the masked places; the model tells for every token whether it stood there (Clark 2020,
    section 2). Only the model is kept."""

    @property
    def heads(self) -> dict[str, int]:
        return {"replaced_tokens": 1}

    def module(self, model: Model, seed: int) -> nn.Module:
        # DeBERTa's third version parts the gradients of the table that ELECTRA shares (He 2021b, section 3.3).
        return Replacing(model, seed, apart=model.config.relative_positions is not None)

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.masked_labels is not None
        return {"masked_lm": len(batch.masked_labels), "replaced": batch.num_tokens}

    def seen(self, module: nn.Module, batch: Batch) -> tuple[dict[str, Loss], Answers]:
        assert isinstance(module, Replacing) and batch.masked_labels is not None
        x_ME, words = module.guesses(batch)
        filled, replaced_T = module.filled(batch, x_ME)
        scores_T = module.model.token_scores("replaced_tokens", module.model(filled))[:, 0].float()
        sum_of_tokens = F.binary_cross_entropy_with_logits(scores_T, replaced_T.float(), reduction="sum")
        losses = {
            "masked_lm": masked_lm_loss(x_ME, module.table, words.bias, batch.masked_labels),
            "replaced": (REPLACED_WEIGHT * sum_of_tokens, batch.num_tokens),
        }
        return losses, {"replaced": ((scores_T > 0).long(), replaced_T.long())}


class OneWay(Objective):
    """The next word from those before it (Radford 2018), or in two halves also the one before from those behind it
    (Peters 2018). Every ordinary token is guessed, and nothing hidden."""

    def __init__(self, *, halves: bool) -> None:
        super().__init__("none")
        self.halves = halves

    def batch(
        self, store: TokenStore, step: StepRows, rows: Sequence[int], tokenizer: Tokenizer, rule: MaskRule, *,
        seed: int, rate: float | None = None,
    ) -> Batch:  # fmt: skip
        batch, labels_N = to_batch(store, step.examples, np.array(rows, np.int64), tokenizer)
        places_M = torch.from_numpy(rule.is_ordinary[batch.input_ids.numpy()]).nonzero()[:, 0]
        labels_M = batch.input_ids[places_M]
        return replace(batch, masked_positions=places_M, masked_labels=labels_M, labels=torch.from_numpy(labels_N))

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.masked_labels is not None
        number = len(batch.masked_labels)
        return {"next_word": number, **({"previous_word": number} if self.halves else {})}

    def seen(self, module: nn.Module, batch: Batch) -> tuple[dict[str, Loss], Answers]:
        assert isinstance(module, Model) and batch.masked_positions is not None and batch.masked_labels is not None
        hidden_TH, words = module(batch), module.heads["masked_words"]
        assert isinstance(words, MaskedLMHead)
        table_VE = module.encoder.embeddings.words.weight

        def loss(x_MH: Tensor) -> Loss:
            assert batch.masked_labels is not None
            return masked_lm_loss(words(x_MH), table_VE, words.bias, batch.masked_labels)

        before_MH = hidden_TH[batch.masked_positions - 1]
        if not self.halves:
            return {"next_word": loss(before_MH)}, {}
        ahead, back = before_MH.chunk(2, -1)[0], hidden_TH[batch.masked_positions + 1].chunk(2, -1)[1]
        nothing = torch.zeros_like(ahead)  # what the other half knows, the word itself among it
        found = {"next_word": torch.cat([ahead, nothing], -1), "previous_word": torch.cat([nothing, back], -1)}
        return {name: loss(x_MH) for name, x_MH in found.items()}, {}


def objective_of(name: Name, pairs: PairTask = "none") -> Objective:
    if name == "forward" or name == "halves":
        return OneWay(halves=name == "halves")
    kinds = {"masked": Objective, "boundary": SpanBoundary, "enhanced": EnhancedDecoder, "replaced": ReplacedTokensHead}
    return kinds[name](pairs)
