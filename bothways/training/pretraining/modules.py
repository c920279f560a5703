"""Modules used only in pre-training: SpanBERT head, ELECTRA generator, DeBERTa mask decoder.

None of them is saved.

Letters: T tokens, M masked positions, H hidden, E embedding size, V vocabulary.
"""

import torch
from torch import Tensor, nn

from bothways.base.rng import Purpose, derive_seed
from bothways.model.attention import spread_queries, take_rows
from bothways.model.config import EncoderConfig
from bothways.model.disentangled import DisentangledAttention
from bothways.model.heads import MaskedLMHead
from bothways.model.kernels import append_dummy_rows, append_dummy_text
from bothways.model.layer import ACTIVATIONS, Layer
from bothways.model.model import Model, initialize
from bothways.model.rows import HiddenRows
from bothways.model.vocabulary_scores import sample_words
from bothways.text.batch import Batch

MAX_SPAN = 20  # tokens with positions of their own in a span
POSITION_SIZE = 200  # of a position vector
DECODER_STEPS = 2  # (He 2021, section 3.2)
GENERATOR_DIVISOR = 4  # the generator is a quarter of the model's size (Clark 2020, section 3.2: a quarter to a half)


class BoundaryModel(nn.Module):
    """A model with a SpanBERT head, which predicts masked words from the tokens around their span."""

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        self.model = model
        self.head = SpanBoundaryHead(model.config)
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        initialize(self.head, model.config.initializer_range, generator)


class SpanBoundaryHead(nn.Module):
    """LN(GELU(W2 LN(GELU(W1 [x_before; x_behind; p])))) for each masked token (Joshi 2020, section 3.2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        size = config.embedding_size or config.hidden_size
        self.positions = nn.Embedding(MAX_SPAN, POSITION_SIZE)
        self.first = nn.Linear(2 * hidden + POSITION_SIZE, hidden)
        self.second = nn.Linear(hidden, size)
        self.first_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.second_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, x_TH: Tensor | HiddenRows, positions_M: Tensor) -> Tensor:
        """positions_M, ascending -> [M, E], to be multiplied with the embedding table. x_TH: the states, which are read
        around the spans."""
        first_M, last_M = runs(positions_M)
        positions_MP = self.positions((positions_M - first_M).clamp(max=MAX_SPAN - 1))

        # A span always has an unmasked token on each side, because special tokens are never masked.
        around = torch.cat([x_TH[first_M - 1], x_TH[last_M + 1], positions_MP], -1)
        inner_MH = self.first_norm(self.activation(self.first(around)))
        guessed_ME: Tensor = self.second_norm(self.activation(self.second(inner_MH)))
        return guessed_ME


def runs(positions_M: Tensor) -> tuple[Tensor, Tensor]:
    """First and last position of the span of adjacent positions that each position belongs to."""
    if not len(positions_M):
        return positions_M, positions_M

    begins_M = torch.cat([positions_M.new_ones(1), positions_M.diff()]) != 1
    begins_M[0] = True
    run_M = begins_M.cumsum(0) - 1

    firsts_R = positions_M[begins_M]
    lasts_R = firsts_R + torch.bincount(run_M) - 1
    return firsts_R[run_M], lasts_R[run_M]


class DisentangledTable(nn.Embedding):
    """An embedding table plus a learned difference, without gradients to the table (gradient-disentangled sharing, He
    2021b, section 3.3). weight: the difference."""

    def __init__(self, below: nn.Embedding) -> None:
        super().__init__(*below.weight.shape)

        # In a tuple, so that its parameters are not parameters of this module.
        self.base = (below,)
        nn.init.zeros_(self.weight)

    def forward(self, ids_T: Tensor) -> Tensor:
        difference_TE: Tensor = super().forward(ids_T)
        below_TE = nn.functional.embedding(ids_T, self.base[0].weight.detach())
        return difference_TE + below_TE

    def summed(self) -> nn.Embedding:
        """The sum as one table."""
        below = self.base[0].weight.detach().to(self.weight)
        return nn.Embedding.from_pretrained(self.weight.detach() + below, freeze=False)


class ReplacedTokenModel(nn.Module):
    """ELECTRA: a discriminator (the model) and a small generator with shared embeddings.

    model: the discriminator.
    seed: of the generator's weights.
    apart: stop the discriminator's gradients at the shared token table (DeBERTa v3).
    """

    def __init__(self, model: Model, seed: int, *, apart: bool = False) -> None:
        super().__init__()
        self.model = model
        config = model.config
        heads = max(1, config.num_attention_heads // GENERATOR_DIVISOR)
        small = config.replace(
            num_attention_heads=heads,
            hidden_size=heads * config.head_size,
            intermediate_size=config.intermediate_size // GENERATOR_DIVISOR,
            embedding_size=config.embedding_size or config.hidden_size,
        )
        self.generator = Model(small, {"masked_words": 0})
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        initialize(self.generator, config.initializer_range, generator)

        embeddings = self.generator.encoder.embeddings
        shared = model.encoder.embeddings
        embeddings.words = shared.words
        embeddings.segments = shared.segments
        embeddings.positions = shared.positions
        embeddings.norm = shared.norm
        if apart:
            # The generator keeps the table; the discriminator learns a difference to it.
            embeddings.words = nn.Embedding.from_pretrained(shared.words.weight.detach().clone(), freeze=False)
            shared.words = DisentangledTable(embeddings.words)

    def generate(self, batch: Batch) -> tuple[Tensor, MaskedLMHead]:
        """The generator's states at masked positions, [M, E], and its head."""
        words = self.generator.heads["masked_words"]
        assert isinstance(words, MaskedLMHead) and batch.masked_positions is not None
        x_ME: Tensor = words(self.generator(batch, rows_R=batch.masked_positions))
        return x_ME, words

    @property
    def table(self) -> Tensor:
        """The generator's token table, [V, E]."""
        return self.generator.encoder.embeddings.words.weight

    def finish(self) -> None:
        """Merge the discriminator's difference into a token table of its own."""
        embeddings = self.model.encoder.embeddings
        if isinstance(embeddings.words, DisentangledTable):
            embeddings.words = embeddings.words.summed()

    def fill(self, batch: Batch, x_ME: Tensor) -> tuple[Batch, Tensor]:
        """The batch with tokens sampled from the generator at masked positions (no gradient), and whether each token
        differs from the original, [T]."""
        assert batch.masked_positions is not None and batch.masked_labels is not None and batch.masked_draws is not None
        words = self.generator.heads["masked_words"]
        assert isinstance(words, MaskedLMHead)

        ids_T = batch.input_ids.clone()
        with torch.no_grad():
            drawn_M = sample_words(x_ME, self.table, words.bias, batch.masked_draws)
        ids_T[batch.masked_positions] = drawn_M

        # A word that was drawn again is no replaced one.
        replaced_T = torch.zeros_like(ids_T, dtype=torch.bool)
        replaced_T[batch.masked_positions] = drawn_M != batch.masked_labels
        filled = Batch(
            ids_T,
            segment_ids=batch.segment_ids,
            position_ids=batch.position_ids,
            lengths=batch.lengths,
        )
        return filled, replaced_T


class EnhancedMaskDecoder(nn.Module):
    """DeBERTa with its mask decoder: the last layer applied twice, with queries from absolute positions, and keys and
    values from the previous layer (He 2021, section 3.2). All other layers have only relative positions."""

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        self.model = model
        config = model.config
        self.absolute_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        initialize(self.absolute_positions, config.initializer_range, generator)

    def forward(self, batch: Batch, rows_R: Tensor | None = None) -> Tensor:
        """Decoder states, from which masked words are predicted, [T, H]; with rows_R, of these tokens, [R, H]."""
        encoder = self.model.encoder
        num_tokens = batch.num_tokens
        batch = append_dummy_text(batch, encoder.embeddings.words.weight)
        context = encoder.build_context(batch)
        x_TH = encoder.embeddings(batch)
        *layers, last = encoder.layer_sequence
        for layer in layers:
            x_TH = layer(x_TH, context)

        assert isinstance(last, Layer)
        attention = last.attention
        assert isinstance(attention, DisentangledAttention)
        _, k_TND, v_TND = attention.split_heads(attention.qkv(x_TH))
        queries_TH = x_TH + self.absolute_positions(batch.position_ids)

        # A query attends to keys of the layer below, never to another query, so unread ones are left out at once.
        count = num_tokens
        filled_R = None
        if rows_R is not None:
            count = len(rows_R)
            filled_R = append_dummy_rows(rows_R, encoder.embeddings.words.weight)
        queries_RH = take_rows(queries_TH, filled_R)
        for _ in range(DECODER_STEPS):
            q_RND, _, _ = attention.split_heads(attention.qkv(queries_RH))
            q_TND = q_RND if filled_R is None else spread_queries(q_RND, filled_R, len(x_TH))
            attended_TH = attention.attend_with_bias(q_TND, k_TND, v_TND, context)
            mixed_RH = attention.output(take_rows(attended_TH, filled_R))
            queries_RH = last.attention_norm(queries_RH + last.dropout(mixed_RH))
            queries_RH = last.feed_forward_norm(queries_RH + last.dropout(last.feed_forward(queries_RH)))
        return queries_RH[:count]
