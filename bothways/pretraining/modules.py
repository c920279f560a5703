"""Models with parts that only pre-training needs, and nobody saves: SpanBERT's boundary head, ELECTRA's generator,
DeBERTa's decoder that knows positions.

Letters: T tokens, M masked places, H hidden, E embedding size, V vocabulary.
"""

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.disentangled import DisentangledAttention
from bothways.model.heads import MaskedLMHead
from bothways.model.kernels import append_dummy_text, sample_words
from bothways.model.layer import ACTIVATIONS, Layer
from bothways.model.model import Model, initialize
from bothways.rng import Purpose, derive_seed

LONGEST_RUN, POSITION_SIZE = 20, 200  # tokens, of which further ones share a position; numbers of a position
DECODED = 2  # times (He 2021, section 3.2)
LARGER = 4  # so many times the generator's sizes the model's are (Clark 2020, section 3.2: a quarter to a half)


class Boundary(nn.Module):
    """A model, and the head that guesses masked words from what stands around their run."""

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        self.model, self.head = model, BoundaryWords(model.config)
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        initialize(self.head, model.config.initializer_range, generator)


class BoundaryWords(nn.Module):
    """LN(GELU(W2 LN(GELU(W1 [x_before; x_behind; p])))) for each masked token (Joshi 2020, section 3.2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.embedding_size or config.hidden_size
        self.positions = nn.Embedding(LONGEST_RUN, POSITION_SIZE)
        self.first, self.second = nn.Linear(2 * hidden + POSITION_SIZE, hidden), nn.Linear(hidden, size)
        self.first_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.second_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, x_TH: Tensor, places_M: Tensor) -> Tensor:
        """places_M ascending -> [M, E], to be compared with the token table. Next to a run there is always a token that
        is not masked, since special ones never are."""
        first_M, last_M = runs(places_M)
        positions_MP = self.positions((places_M - first_M).clamp(max=LONGEST_RUN - 1))
        around = torch.cat([x_TH[first_M - 1], x_TH[last_M + 1], positions_MP], -1)
        inner_MH = self.first_norm(self.activation(self.first(around)))
        guessed_ME: Tensor = self.second_norm(self.activation(self.second(inner_MH)))
        return guessed_ME


def runs(places_M: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last place of the run of neighbouring places that each stands in."""
    if not len(places_M):
        return places_M, places_M
    begins_M = torch.cat([places_M.new_ones(1), places_M.diff()]) != 1
    begins_M[0] = True
    run_M = begins_M.cumsum(0) - 1
    firsts_R = places_M[begins_M]
    lengths_R = torch.bincount(run_M)
    return firsts_R[run_M], (firsts_R + lengths_R - 1)[run_M]


class OnTop(nn.Embedding):
    """A token table as another one, which gets no gradient from here, and what differs from it (gradient-disentangled
    sharing, He 2021b, section 3.3). weight: what differs."""

    def __init__(self, below: nn.Embedding) -> None:
        super().__init__(*below.weight.shape)
        self.owned_elsewhere = (below,)
        nn.init.zeros_(self.weight)

    def forward(self, ids_T: Tensor) -> Tensor:
        return super().forward(ids_T) + nn.functional.embedding(ids_T, self.owned_elsewhere[0].weight.detach())

    def whole(self) -> nn.Embedding:
        """The table itself."""
        below = self.owned_elsewhere[0].weight
        return nn.Embedding.from_pretrained(self.weight.detach() + below.detach().to(self.weight), freeze=False)


class Replacing(nn.Module):
    """A model that tells replaced tokens, and the small generator that replaces them. They share their embeddings;
    apart: the token table so that the model's gradients do not reach the generator's."""

    def __init__(self, model: Model, seed: int, *, apart: bool = False) -> None:
        super().__init__()
        self.model, config = model, model.config
        heads = max(1, config.num_attention_heads // LARGER)
        small = config.replace(
            num_attention_heads=heads, hidden_size=heads * config.head_size,
            intermediate_size=config.intermediate_size // LARGER,
            embedding_size=config.embedding_size or config.hidden_size,
        )  # fmt: skip
        self.generator = Model(small, {"masked_words": 0})
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        initialize(self.generator, config.initializer_range, generator)
        own, shared = self.generator.encoder.embeddings, model.encoder.embeddings
        own.words, own.segments, own.positions, own.norm = shared.words, shared.segments, shared.positions, shared.norm
        if apart:
            own.words = nn.Embedding.from_pretrained(shared.words.weight.detach().clone(), freeze=False)
            shared.words = OnTop(own.words)

    def guesses(self, batch: Batch) -> tuple[Tensor, MaskedLMHead]:
        """What the generator makes of the masked places, [M, E], and its head."""
        words = self.generator.heads["masked_words"]
        assert isinstance(words, MaskedLMHead) and batch.masked_positions is not None
        x_ME: Tensor = words(self.generator(batch)[batch.masked_positions])
        return x_ME, words

    @property
    def table(self) -> Tensor:
        """The generator's token table, [V, E]."""
        return self.generator.encoder.embeddings.words.weight

    def finish(self) -> None:
        """Give the model a token table of its own, where it had none."""
        embeddings = self.model.encoder.embeddings
        if isinstance(embeddings.words, OnTop):
            embeddings.words = embeddings.words.whole()

    def filled(self, batch: Batch, x_ME: Tensor) -> tuple[Batch, Tensor]:
        """The text with words drawn from the generator at the masked places, without a gradient, and where a token is
        another than it was, [T]. What the generator draws right is not replaced."""
        assert batch.masked_positions is not None and batch.masked_labels is not None and batch.masked_draws is not None
        words = self.generator.heads["masked_words"]
        assert isinstance(words, MaskedLMHead)
        ids_T = batch.input_ids.clone()
        with torch.no_grad():
            drawn_M = sample_words(x_ME, self.table, words.bias, batch.masked_draws)
        ids_T[batch.masked_positions] = drawn_M
        replaced_T = torch.zeros_like(ids_T, dtype=torch.bool)
        replaced_T[batch.masked_positions] = drawn_M != batch.masked_labels
        rows = (ids_T, batch.segment_ids, batch.position_ids, batch.lengths)
        return Batch(*rows), replaced_T


class Enhanced(nn.Module):
    """A model, and the decoder that guesses its masked words: the last layer twice, asking from where a word stands and
    looking at what the layer before it knows (He 2021, section 3.2). Elsewhere a DeBERTa knows only how far apart words
    are."""

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        self.model, config = model, model.config
        self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        initialize(self.places, config.initializer_range, generator)

    def forward(self, batch: Batch) -> Tensor:
        """What masked words are guessed from, [T, H]."""
        encoder, number = self.model.encoder, batch.num_tokens
        batch = append_dummy_text(batch, encoder.embeddings.words.weight)
        context, x_TH = encoder.build_context(batch), encoder.embeddings(batch)
        *layers, last = encoder.layer_sequence
        for layer in layers:
            x_TH = layer(x_TH, context)
        assert isinstance(last, Layer)
        attention = last.attention
        assert isinstance(attention, DisentangledAttention)
        _, k_TND, v_TND = attention.split_heads(attention.qkv(x_TH))
        asking_TH = x_TH + self.places(batch.position_ids)
        for _ in range(DECODED):
            q_TND, _, _ = attention.split_heads(attention.qkv(asking_TH))
            mixed_TH = attention.output(attention.attend_with_bias(q_TND, k_TND, v_TND, context))
            asking_TH = last.attention_norm(asking_TH + last.dropout(mixed_TH))
            asking_TH = last.feed_forward_norm(asking_TH + last.dropout(last.feed_forward(asking_TH)))
        return asking_TH[:number]
