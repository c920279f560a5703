"""Initial model of pre-training: a new model, or a checkpoint to continue (Gururangan 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from bothways.base.log import logger
from bothways.measure import metrics
from bothways.model.checkpoint import contents
from bothways.model.checkpoint.contents import Checkpoint, with_dropout
from bothways.model.checkpoint.formats.hugging_face import POOLER
from bothways.model.config import EncoderConfig, GlobalTokensConfig
from bothways.model.families import FAMILIES
from bothways.model.heads import MaskedLMHead
from bothways.model.local_init import initialize_locally
from bothways.model.model import Model
from bothways.model.parameters import same_random_numbers
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining.modules import ReplacedTokenModel
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.pretraining.text_data import PretrainingData

OUR_OWN = "bothways-oneway"


@dataclass(frozen=True)
class Initialization:
    """How initial weights are drawn or computed, besides an output bias at the log frequencies of the tokens.

    seed: of the random weights.
    dropout: of the model while it is trained.
    word_vectors: token embeddings from co-occurrence counts.
    local_init: attention to neighbouring tokens.
    """

    seed: int
    dropout: float
    word_vectors: bool
    local_init: bool


def new_model(
    config: EncoderConfig,
    model_type: str,
    objective: PretrainingObjective,
    initialization: Initialization,
    data: PretrainingData,
) -> Checkpoint:
    """A new model with randomly initialized or precomputed weights.

    config: of the model, except vocabulary and dropout.
    model_type: its family.
    objective: of which the model has the heads.
    initialization: how the weights are drawn or computed.
    data: the training text, for word frequencies and word vectors.
    """
    tokenizer = data.tokenizer
    config = with_dropout(config, initialization.dropout)
    config = config.replace(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_id)
    if config.position_offset:
        # The positions of the family start behind the id of padding.
        config = config.replace(position_offset=tokenizer.pad_id + 1)
    if isinstance(config.sparse_attention, GlobalTokensConfig):
        config = config.replace(sparse_attention=GlobalTokensConfig(separator=tokenizer.sep_id))

    model = contents.new_model(config, objective.heads, initialization.seed)
    init_bias_from_frequencies(model, data.frequencies)
    if initialization.word_vectors:
        init_from_word_vectors(model, data, initialization.seed)
    if initialization.local_init:
        initialize_locally(model)
    return Checkpoint(model, tokenizer, model_type=model_type if config.direction == "both" else OUR_OWN)


def continue_from(
    start: Checkpoint, objective: PretrainingObjective, initialization: Initialization, data: PretrainingData
) -> Checkpoint:
    """Adapt a checkpoint: add missing heads (logged) and an embedding row for each new vocabulary entry.

    start: the checkpoint.
    objective: of which the model has the heads; InputError if the family has no such heads.
    initialization: how new weights are drawn.
    data: the training text, for word frequencies.
    """
    old = start.model
    heads = objective.heads
    tokenizer = data.tokenizer
    vocab_size = max(len(tokenizer), old.config.vocab_size)
    config = with_dropout(old.config, initialization.dropout).replace(vocab_size=vocab_size)
    pooler_names = FAMILIES[start.model_type].hf_names(POOLER, heads)
    has_pooler = old.pooler is not None and bool(pooler_names)
    model = contents.new_model(config, heads, initialization.seed, pooler=has_pooler)

    state = model.state_dict()
    old_state = old.state_dict()
    for name in state.keys() & old_state.keys():
        # Of a longer vocabulary, the old entries.
        state[name][: len(old_state[name])] = old_state[name]
    new = sorted({".".join(name.split(".")[:2]) for name in state.keys() - old_state.keys()})
    if new:
        logger.info(f"newly initialized: {', '.join(new)}")
    if "masked_words" not in old.heads:
        init_bias_from_frequencies(model, data.frequencies)
    _fill_new_rows(model, start.tokenizer or tokenizer, tokenizer)

    # All that describes the task of the checkpoint goes.
    return replace(
        start,
        model=model,
        tokenizer=tokenizer,
        labels=(),
        pooling=None,
        metadata={},
        words=None,
        scope=None,
        statements=None,
    )


def module_to_train(
    model: Model, objective: PretrainingObjective, initialization: Initialization, data: PretrainingData
) -> nn.Module:
    """The model, or the model with parts that only training needs.

    model: the initial model.
    objective: whose parts they are.
    initialization: how their weights are drawn.
    data: the training text, for word frequencies.
    """
    with same_random_numbers():
        module = objective.module(model, initialization.seed)
    if isinstance(module, ReplacedTokenModel):
        init_bias_from_frequencies(module.generator, data.frequencies)
        if initialization.local_init:
            initialize_locally(module.generator)
    return module


def has_untrained_globals(initial: Checkpoint, start: Checkpoint | None) -> bool:
    """Whether this is a Longformer whose global projections no training has reached: they stay as the others are."""
    is_longformer = isinstance(initial.model.config.sparse_attention, GlobalTokensConfig)
    return is_longformer and (start is None or global_projections_are_copies(start.model))


def global_projections(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the ordinary projections under the names of the projections for global tokens."""
    copies = {}
    for name, value in state.items():
        if ".attention.qkv." in name:
            size = len(value) // 3
            copies[name.replace(".qkv.", ".global_query.")] = value[:size]
            copies[name.replace(".qkv.", ".global_key_value.")] = value[size:]
    return copies


def copy_to_global_projections(model: Model) -> None:
    """Copy a Longformer's ordinary projections to its global ones."""
    # Pre-training has no global tokens, so without this the projections would keep their initial values.
    model.load_state_dict(global_projections(model.state_dict()), strict=False)


def global_projections_are_copies(model: Model) -> bool:
    """Whether a Longformer's global projections equal the ordinary ones, that is, are untrained."""
    state = model.state_dict()
    return all(torch.equal(state[name], value) for name, value in global_projections(state).items())


def init_bias_from_frequencies(model: Model, frequencies: np.ndarray) -> None:
    """Start the output bias at log word frequencies, so that they need not be learned."""
    words = dict(model.heads.named_children()).get("masked_words")
    if isinstance(words, MaskedLMHead):
        num_padding = len(words.bias) - len(frequencies)
        probabilities = metrics.unigram_probabilities(np.pad(frequencies, (0, num_padding)))
        words.bias.data = torch.from_numpy(np.log(probabilities)).float()


def init_from_word_vectors(model: Model, data: PretrainingData, seed: int) -> None:
    """Start word embeddings from co-occurrence vectors, at the usual scale.

    model: with random embeddings, changed in place.
    data: the training text.
    seed: of the vectors.
    """
    from bothways.text.corpus.cooccurrence import word_vectors  # needs SciPy

    table_VE = model.encoder.embeddings.words.weight.data
    vectors_VE = torch.from_numpy(word_vectors(data.store, data.training, *table_VE.shape, seed=seed))

    # Rare words stay random, because LayerNorm would amplify the gradients of their short vectors.
    norms_V = vectors_VE.norm(dim=1)
    is_frequent_V = norms_V > norms_V.mean() / 4
    table_VE[is_frequent_V] = vectors_VE[is_frequent_V] * table_VE.std()


def _fill_new_rows(model: Model, old: Tokenizer, new: Tokenizer) -> None:
    """Start each new entry at the mean of the pieces it was split into before."""
    words = dict(model.heads.named_children()).get("masked_words")
    tables = [model.encoder.embeddings.words.weight]
    if isinstance(words, MaskedLMHead):
        tables.append(words.bias)
    with torch.no_grad():
        for token in new.tokens[len(old) :]:
            pieces = old.ids(token)
            for values in tables:
                values[new.vocab[token]] = values[pieces].mean(0)
