"""Pre-training objectives: MLM, SpanBERT, DeBERTa, ELECTRA, and causal language models.

Each class names the heads of the saved model, builds the module to train (a model, or a model with further parts that
only training needs), prepares batches, and computes outputs, losses and predictions. The protocol of the training loop
is in model/losses.py.

Letters: T tokens, M target positions, N texts, H hidden, E embedding size, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.base.registry import Registry
from bothways.model.heads import MaskedLMHead
from bothways.model.losses import Loss, Objective, classification_loss, masked_lm_loss
from bothways.model.model import Model
from bothways.model.rows import read_states
from bothways.model.vocabulary_scores import WordCandidates
from bothways.settings.fields import OwnObjective
from bothways.text.batch import Batch
from bothways.text.corpus.masking import MaskRule, mask_tokens
from bothways.text.corpus.sampler import StepRows
from bothways.text.corpus.sentence_pairs import PairTask, to_batch
from bothways.text.corpus.token_store import TokenStore
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining.modules import BoundaryModel, EnhancedMaskDecoder, ReplacedTokenModel, runs

ObjectiveName = Literal["masked", "boundary", "enhanced", "replaced", "forward", "halves"]
Predictions = Mapping[str, tuple[Tensor, Tensor]]  # binary tasks by name: predicted labels, gold labels
WORD_LOSSES = ("masked_lm", "next_word", "previous_word")  # log-perplexities of words
PAIR_TASK_NAMES = {"next": "next_sentence", "order": "sentence_order"}
REPLACED_WEIGHT = 50.0  # Clark 2020, appendix A


class PretrainingObjective(Objective):
    """BERT's objective: masked words, and next sentence or sentence order (Devlin 2018, section 3.1)."""

    # Whether a recipe may train the words over candidates, which `word_loss` knows of. Not inherited (`samples_words`):
    # a class of one's own says so itself, since its losses may need all words.
    samples_words: ClassVar[bool] = True

    def __init__(self, pairs: PairTask = "none") -> None:
        self.pairs: PairTask = pairs

    @property
    def heads(self) -> dict[str, int]:
        """Heads of the saved model, with their numbers of outputs."""
        if self.pairs == "none":
            return {"masked_words": 0}
        return {"masked_words": 0, "next_sentence": 2}

    def module(self, model: Model, seed: int) -> nn.Module:
        """The module to train, which contains the model. seed: for weights outside the model."""
        return model

    def mask(self, batch: Batch, step: StepRows, rows: Sequence[int], rule: MaskRule, *, seed: int) -> Batch:
        """Add targets to a batch of examples: mask tokens and keep the original ones as labels."""
        example_ids_N3 = np.stack(np.broadcast_arrays(step.epoch, step.section, np.array(rows, np.int64)), axis=1)
        return mask_tokens(batch, rule, seed=seed, example_ids=example_ids_N3)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Number of targets of each loss."""
        assert batch.masked_labels is not None and batch.labels is not None
        return {"masked_lm": len(batch.masked_labels), "next_sentence": int((batch.labels >= 0).sum())}

    def rows(self, batch: Batch) -> Tensor | None:
        """The tokens whose hidden states `losses` and `predictions` read; None: all. The last layer computes no others:
        masked ones, and the first of each text, which a model with a head for pairs reads even where this objective
        has no pairs."""
        assert batch.masked_positions is not None
        return torch.cat([batch.masked_positions, batch.first_tokens])

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        """Hidden states, which are indexed by positions in T (`HiddenRows`; a tensor [T, H] if `rows` is None), or
        other outputs that `losses` and `predictions` need."""
        return read_states(module, batch, self.rows(batch))

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        """Each loss by name, as (sum, count). Next sentence and sentence order share one head; examples that are not
        pairs have no such loss."""
        assert isinstance(module, Model)
        assert batch.masked_positions is not None and batch.masked_labels is not None and batch.labels is not None
        losses = {"masked_lm": word_loss(module, outputs[batch.masked_positions], batch)}
        if "next_sentence" in module.heads:
            scores_N2 = module.text_scores("next_sentence", outputs[batch.first_tokens])
            value, _ = classification_loss(scores_N2, batch.labels)
            losses["next_sentence"] = (value, (batch.labels >= 0).sum())
        return losses

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        """Further held-out figures, from the mean of each loss."""
        return {}

    def predictions(self, module: nn.Module, batch: Batch, outputs: Any) -> Predictions:
        """Predicted and gold labels of binary tasks, for held-out accuracy."""
        if self.pairs == "none" or batch.labels is None:
            return {}
        assert isinstance(module, Model)
        scores_N2 = module.text_scores("next_sentence", outputs[batch.first_tokens])
        return {PAIR_TASK_NAMES[self.pairs]: (scores_N2.argmax(-1), batch.labels)}


class SpanBoundary(PretrainingObjective):
    """SpanBERT: each masked word is also predicted from the two tokens around its masked span (Joshi 2020, section
    3.2)."""

    samples_words = True

    def module(self, model: Model, seed: int) -> nn.Module:
        return BoundaryModel(model, seed)

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = super().counts(batch)
        return {**counts, "boundary": counts["masked_lm"]}

    def rows(self, batch: Batch) -> Tensor | None:
        rows_R = super().rows(batch)
        assert rows_R is not None and batch.masked_positions is not None
        first_M, last_M = runs(batch.masked_positions)

        # Adjacent spans share a token between them.
        is_read_T = torch.zeros_like(batch.input_ids, dtype=torch.bool)
        is_read_T[torch.cat([rows_R, first_M - 1, last_M + 1])] = True
        return is_read_T.nonzero()[:, 0]

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        assert isinstance(module, BoundaryModel)
        return read_states(module.model, batch, self.rows(batch))

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        assert isinstance(module, BoundaryModel)
        assert batch.masked_positions is not None and batch.masked_labels is not None
        model = module.model
        losses = super().losses(model, batch, outputs)

        x_ME = module.head(outputs, batch.masked_positions)
        head = model.heads["masked_words"]
        table_VE = model.encoder.embeddings.words.weight
        assert isinstance(head, MaskedLMHead)
        candidates = candidates_of(batch)
        return {**losses, "boundary": masked_lm_loss(x_ME, table_VE, head.bias, batch.masked_labels, candidates)}


class EnhancedDecoder(PretrainingObjective):
    """DeBERTa: masked words predicted by a decoder with absolute positions (He 2021, section 3.2)."""

    samples_words = True

    def module(self, model: Model, seed: int) -> nn.Module:
        return EnhancedMaskDecoder(model, seed)

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        assert isinstance(module, EnhancedMaskDecoder)
        return super().losses(module.model, batch, outputs)


class ReplacedOutputs(NamedTuple):
    """generator_ME: the generator's states at masked positions; scores_T: a logit per token, was it replaced;
    replaced_T: whether it was."""

    generator_ME: Tensor
    head: MaskedLMHead
    scores_T: Tensor
    replaced_T: Tensor


class ReplacedTokens(PretrainingObjective):
    """ELECTRA: a small generator fills masked positions, the model detects replaced tokens (Clark 2020, section 2).
    Only the model is saved."""

    # The generator's words are drawn from the softmax over all words, and its narrow head is a small part of a step.
    samples_words = False

    @property
    def heads(self) -> dict[str, int]:
        return {"replaced_tokens": 1}

    def module(self, model: Model, seed: int) -> nn.Module:
        # DeBERTa v3 separates the gradients of the embedding table that ELECTRA shares (He 2021b, section 3.3).
        return ReplacedTokenModel(model, seed, apart=model.config.relative_positions is not None)

    def rows(self, batch: Batch) -> Tensor | None:
        return None

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.masked_labels is not None
        return {"masked_lm": len(batch.masked_labels), "replaced": batch.num_tokens}

    def forward(self, module: nn.Module, batch: Batch) -> ReplacedOutputs:
        assert isinstance(module, ReplacedTokenModel)
        x_ME, head = module.generate(batch)
        filled, replaced_T = module.fill(batch, x_ME)
        scores_T = module.model.token_scores("replaced_tokens", module.model(filled))[:, 0].float()
        return ReplacedOutputs(
            generator_ME=x_ME,
            head=head,
            scores_T=scores_T,
            replaced_T=replaced_T,
        )

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        assert isinstance(module, ReplacedTokenModel) and batch.masked_labels is not None
        sum_of_tokens = F.binary_cross_entropy_with_logits(
            outputs.scores_T, outputs.replaced_T.float(), reduction="sum"
        )
        return {
            "masked_lm": masked_lm_loss(outputs.generator_ME, module.table, outputs.head.bias, batch.masked_labels),
            "replaced": (REPLACED_WEIGHT * sum_of_tokens, batch.num_tokens),
        }

    def predictions(self, module: nn.Module, batch: Batch, outputs: Any) -> Predictions:
        return {"replaced": ((outputs.scores_T > 0).long(), outputs.replaced_T.long())}


class OneWay(PretrainingObjective):
    """Causal language model: predict the next word (Radford 2018); with halves also the previous word, from a second,
    backward stack (Peters 2018). Every ordinary token is a target and none is masked."""

    samples_words = True

    def __init__(self, *, halves: bool) -> None:
        super().__init__("none")
        self.halves = halves

    def mask(self, batch: Batch, step: StepRows, rows: Sequence[int], rule: MaskRule, *, seed: int) -> Batch:
        positions_M = torch.from_numpy(rule.is_ordinary[batch.input_ids.numpy()]).nonzero()[:, 0]
        return replace(batch, masked_positions=positions_M, masked_labels=batch.input_ids[positions_M])

    def rows(self, batch: Batch) -> Tensor | None:
        return None  # nearly all tokens are targets

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.masked_labels is not None
        count = len(batch.masked_labels)
        if not self.halves:
            return {"next_word": count}
        return {"next_word": count, "previous_word": count}

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        assert isinstance(module, Model) and batch.masked_positions is not None
        before_MH = outputs[batch.masked_positions - 1]
        if not self.halves:
            return {"next_word": word_loss(module, before_MH, batch)}

        behind_MH = outputs[batch.masked_positions + 1]
        forward_MH, _ = before_MH.chunk(2, -1)
        _, backward_MH = behind_MH.chunk(2, -1)

        # In place of the other half, which has seen the target.
        zeros = torch.zeros_like(forward_MH)
        return {
            "next_word": word_loss(module, torch.cat([forward_MH, zeros], -1), batch),
            "previous_word": word_loss(module, torch.cat([zeros, backward_MH], -1), batch),
        }


def word_loss(model: Model, x_MH: Tensor, batch: Batch) -> Loss:
    """The loss of words that are predicted from these states, over the candidates of the batch if it has any."""
    head = model.heads["masked_words"]
    assert isinstance(head, MaskedLMHead) and batch.masked_labels is not None
    table_VE = model.encoder.embeddings.words.weight
    return masked_lm_loss(head(x_MH), table_VE, head.bias, batch.masked_labels, candidates_of(batch))


def candidates_of(batch: Batch) -> WordCandidates | None:
    """The candidates for the masked words of a batch; None: all words."""
    if batch.candidates is None:
        return None
    assert batch.candidate_corrections is not None and batch.candidate_labels is not None
    return WordCandidates(batch.candidates, batch.candidate_corrections, batch.candidate_labels)


OBJECTIVES = Registry[Callable[[PairTask], PretrainingObjective]](
    "objective",
    "bothways.objectives",
    {
        "masked": PretrainingObjective,
        "boundary": SpanBoundary,
        "enhanced": EnhancedDecoder,
        "replaced": ReplacedTokens,
        "forward": lambda pairs: OneWay(halves=False),
        "halves": lambda pairs: OneWay(halves=True),
    },
)


def build_objective(objective: str | OwnObjective, pairs: PairTask = "none") -> PretrainingObjective:
    """The objective of a name, or an own one with these pairs. InputError if it is something else."""
    built = OBJECTIVES[objective](pairs) if isinstance(objective, str) else objective
    if not isinstance(built, PretrainingObjective):
        raise InputError(f"objective ({objective_name(objective)}) is not an instance of PretrainingObjective")
    if built.pairs != pairs and not isinstance(objective, str):
        # Held-out text of one document has no pairs.
        built = copy(built)
        built.pairs = pairs
    return built


def samples_words(objective: PretrainingObjective) -> bool:
    """Whether the words of an objective may be trained over candidates: its class itself says so."""
    return bool(vars(type(objective)).get("samples_words", False))


def objective_name(objective: str | OwnObjective) -> str:
    """The name of an objective in messages and in the record of a run; of an own one, that of its class."""
    return objective if isinstance(objective, str) else type(objective).__name__


def kind_of(objective: str | OwnObjective) -> str:
    """The name of the objective of ours that one is, or is a subclass of. "auto" stays."""
    if isinstance(objective, str) and (objective in OBJECTIVES.entries or objective == "auto"):
        return objective
    built = build_objective(objective) if isinstance(objective, str) else objective
    if isinstance(built, OneWay):
        return "halves" if built.halves else "forward"
    kinds = {"boundary": SpanBoundary, "enhanced": EnhancedDecoder, "replaced": ReplacedTokens}
    return next((name for name, kind in kinds.items() if isinstance(built, kind)), "masked")


def example_batch(store: TokenStore, step: StepRows, rows: Sequence[int], tokenizer: Tokenizer) -> Batch:
    """Rows of a step as token ids, with the labels of their sentence pairs."""
    batch, labels_N = to_batch(store, step.examples, np.array(rows, np.int64), tokenizer)
    return replace(batch, labels=torch.from_numpy(labels_N))
