"""Attention in which few tokens see far: those that see all (Longformer, Beltagy 2020), blocks at random (BigBird,
Zaheer 2020).

A part of `Positions` finds out once a batch who sees whom; the attention of each layer goes by it. Letters: T tokens, N
heads, D head size, H hidden = N x D, G tokens that see all; B texts padded to S tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.attention_config import GlobalTokensConfig, RandomBlocksConfig
from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.attention import Attention, Context
from bothways.model.block_sparse import Blocks, block_attention, random_blocks, window_blocks
from bothways.model.layout import Layout, Sides, sees_all
from bothways.model.padded import Padded
from bothways.model.positions import Positions

ALL: Sides = (-1, -1)


@dataclass(frozen=True)
class Pattern:
    """Who sees whom: rows of blocks, or a bias on the scores of padded texts [1, B, S, S], or, with neither, all."""

    blocks: Blocks | None = None
    bias: Tensor | None = None

    def attend(self, layout: Layout, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, dropout: float) -> Tensor:
        """[T, N, D]"""
        if self.blocks is not None:
            return block_attention(q_TND, k_TND, v_TND, self.blocks, dropout)
        bias = None if self.bias is None else self.added
        return layout.attend(q_TND, k_TND, v_TND, sides=ALL, dropout=dropout, bias=bias)

    def added(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias, whatever is asked and seen."""
        assert self.bias is not None
        return self.bias.to(q.dtype)


# --- tokens that see all ----------------------------------------------------------------------------------------------


class GlobalTokens(Positions):
    """Which tokens see all: those the batch names, or else [CLS] where a text is judged, the question where it is
    answered, and none for anything else."""

    def __init__(self, far: GlobalTokensConfig, sides: Sides) -> None:
        super().__init__()
        self.separator, self.sides = far.separator, sides

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> tuple[Any, ...]:
        """Who sees whom; which tokens see all, as a mask [T] of padded texts or as places [G], None: no token; and how
        many tokens each text has, and how many of those see all."""
        chosen_T = self.chosen(batch, layout)
        if isinstance(layout, Padded):  # whose lengths may be symbols, and which asks for none
            return Pattern(bias=self.bias(chosen_T, layout)), chosen_T, (), ()
        lengths = batch.lengths.tolist()
        places_G, numbers = None, [0] * len(lengths)
        if chosen_T is not None and bool(chosen_T.any()):
            places_G = chosen_T.nonzero()[:, 0]
            numbers = [int(part.sum()) for part in chosen_T.cpu().split(lengths)]
        if sees_all(self.sides, max(lengths)):
            return Pattern(), places_G, lengths, numbers
        picked = None if places_G is None else places_G.cpu().numpy()
        return Pattern(window_blocks(lengths, self.sides, batch.input_ids.device, picked)), places_G, lengths, numbers

    def chosen(self, batch: Batch, layout: Layout) -> Tensor | None:
        """[T], True for tokens that see all."""
        if batch.global_tokens is not None:
            return batch.global_tokens
        if "spans" in self.heads:
            return self.question(batch, layout)
        if self.heads & {"classes", "next_sentence"}:
            chosen_T = torch.zeros_like(batch.input_ids, dtype=torch.bool)
            chosen_T[layout.first_tokens] = True
            return chosen_T
        return None

    def question(self, batch: Batch, layout: Layout) -> Tensor:
        """What stands before the first separator of its text."""
        ends = (batch.input_ids == self.separator).long()
        if isinstance(layout, Padded):
            ends_BS = ends.view(layout.real.shape) * layout.real
            return (ends_BS.cumsum(1).flatten() == 0) & layout.real.flatten()
        before = F.pad(ends.cumsum(0), (1, 0))[layout.first_tokens]  # of earlier texts
        return ends.cumsum(0) == before.repeat_interleave(batch.lengths.to(before.device))

    def bias(self, chosen_T: Tensor | None, layout: Padded) -> Tensor:
        """0 where a token may look, [1, B, S, S]."""
        position_BS = layout.position_ids.view(layout.real.shape)
        ahead_BSS = position_BS[:, None] - position_BS[:, :, None]
        seen_BSS = (ahead_BSS >= -self.sides[0]) & (ahead_BSS <= self.sides[1])
        if chosen_T is not None:
            seen_BSS = seen_BSS | chosen_T.view(layout.real.shape)[:, None]
        return torch.where(seen_BSS, 0.0, layout.HIDDEN)[None]


class GlobalAttention(Attention):
    """A window for most tokens, and chosen ones that see all and that all see. What those see goes through maps of its
    own (section 3.1)."""

    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions) -> None:
        super().__init__(config, sides=sides, positions=positions)
        self.global_query = nn.Linear(config.hidden_size, config.hidden_size)
        self.global_key_value = nn.Linear(config.hidden_size, 2 * config.hidden_size)

    def mixed(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        pattern, chosen, lengths, numbers = context.positions[self.positions]
        dropout = self.dropout if self.training else 0.0
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        mixed_TH: Tensor = pattern.attend(context.layout, q_TND, k_TND, v_TND, dropout).flatten(1)
        if chosen is None:
            return mixed_TH
        k_TND, v_TND = self.global_key_value(x_TH).unflatten(-1, (2, self.num_heads, -1)).unbind(1)
        if isinstance(context.layout, Padded):
            q_TND = self.global_query(x_TH).unflatten(-1, (self.num_heads, -1))
            all_TND = context.layout.attend(q_TND, k_TND, v_TND, sides=ALL, dropout=dropout)
            return torch.where(chosen[:, None], all_TND.flatten(1), mixed_TH)
        q_GND = self.global_query(x_TH[chosen]).unflatten(-1, (self.num_heads, -1))
        texts = zip(q_GND.split(numbers), k_TND.split(lengths), v_TND.split(lengths), strict=True)
        return mixed_TH.index_copy(0, chosen, self.far(texts, dropout).flatten(1))

    def far(self, texts: Iterable[tuple[Tensor, Tensor, Tensor]], dropout: float) -> Tensor:
        """What the chosen tokens see, text by text: [G, N, D]."""
        found = []
        for text in texts:
            q_NGD, k_NSD, v_NSD = (x.transpose(0, 1)[None] for x in text)
            if q_NGD.shape[2]:
                found.append(F.scaled_dot_product_attention(q_NGD, k_NSD, v_NSD, dropout_p=dropout)[0])
        return torch.cat(found, 1).transpose(0, 1)


# --- blocks at random -------------------------------------------------------------------------------------------------


class RandomBlocks(Positions):
    """Which blocks see which: one pattern for all layers, or one each where a model trains. Those drawn are a function
    of the text and the layer alone, so that company, micro-batches and a resumed run change nothing."""

    def __init__(self, far: RandomBlocksConfig, layers: int) -> None:
        super().__init__()
        self.far, self.layers = far, layers

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> tuple[Any, ...]:
        if isinstance(layout, Padded):
            return (Pattern(bias=self.bias(layout)),)
        if int(batch.lengths.max()) <= self.far.shortest:
            return (Pattern(),)
        sizes = self.far.size, self.far.number, self.far.shortest
        lengths, device = batch.lengths.tolist(), batch.input_ids.device
        if not self.training:
            return (Pattern(random_blocks(lengths, *sizes, device)),)
        texts = [ids.numpy().tobytes() for ids in batch.input_ids.cpu().split(lengths)]
        keys = [[crc32(text, layer) for text in texts] for layer in range(self.layers)]
        return tuple(Pattern(random_blocks(lengths, *sizes, device, of_layer)) for of_layer in keys)

    def bias(self, layout: Padded) -> Tensor:
        """The logarithm of how often a token looks at another, [1, B, S, S]."""
        size, number = self.far.size, self.far.number
        block_BS = layout.position_ids.view(layout.real.shape) // size
        length_B11 = layout.real.sum(1)[:, None, None]
        last_B11 = (length_B11 - 1) // size
        of_BS1, to_B1S = block_BS[:, :, None], block_BS[:, None]
        whole = (of_BS1 == 0) | (of_BS1 == last_B11) | (length_B11 <= self.far.shortest)
        near = ((of_BS1 - to_B1S).abs() <= 1) | (to_B1S == 0) | (to_B1S == last_B11)
        times = torch.where(whole, 1.0, near + number * (to_B1S == 0).float())
        return times.log().clamp(min=layout.HIDDEN)[None]


class BlockAttention(Attention):
    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions, index: int) -> None:
        super().__init__(config, sides=sides, positions=positions)
        self.index = index

    def mixed(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        return self.among(context, q_TND, k_TND, v_TND).flatten(1)

    def among(self, context: Context, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor) -> Tensor:
        """By the layer's own pattern, which is no part of what all layers compile alike."""
        patterns = context.positions[self.positions]
        pattern: Pattern = patterns[self.index % len(patterns)]
        return pattern.attend(context.layout, q_TND, k_TND, v_TND, self.dropout if self.training else 0.0)
