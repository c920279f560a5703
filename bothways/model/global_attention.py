"""Sparse attention with global tokens (Longformer) or random blocks (BigBird).

Sources: Beltagy 2020; Zaheer 2020.

A `Positions` module builds an attention pattern once per batch; the attention of each layer uses it. Letters: T tokens,
N heads, D head size, H hidden = N x D, G global tokens; B texts padded to S tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.device import copy_to
from bothways.model.attention import Attention, Context, Positions, Prepared
from bothways.model.block_patterns import random_blocks, window_blocks
from bothways.model.block_sparse import Blocks, block_attention
from bothways.model.config import EncoderConfig, GlobalTokensConfig, RandomBlocksConfig
from bothways.model.layout import Layout, Padded, Sides, is_full_attention
from bothways.text.batch import Batch

FULL: Sides = (-1, -1)


@dataclass(frozen=True)
class Pattern:
    """Which tokens attend to which: blocks, or a bias on the scores of padded texts [1, B, S, S]; neither: all to
    all."""

    blocks: Blocks | None = None
    bias: Tensor | None = None

    def attend(self, layout: Layout, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, dropout: float) -> Tensor:
        """Attention by this pattern, [T, N, D].

        layout: of the batch, for patterns that are not blocks.
        q_TND, k_TND, v_TND: queries, keys and values.
        dropout: rate for the attention weights.
        """
        if self.blocks is not None:
            return block_attention(q_TND, k_TND, v_TND, self.blocks, dropout)

        bias = None if self.bias is None else self.constant_bias
        return layout.attend(q_TND, k_TND, v_TND, sides=FULL, dropout=dropout, bias=bias)

    def constant_bias(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias, which does not depend on queries and keys."""
        assert self.bias is not None
        return self.bias.to(q.dtype)


# --- global tokens ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GlobalPattern(Prepared):
    """The pattern of ordinary tokens, and the global tokens.

    tokens: global tokens as indices [G], or of padded texts as a mask [T]; None: there are none. lengths, counts:
    tokens and global tokens of each text; empty for padded texts, whose lengths may be symbols.
    """

    pattern: Pattern
    tokens: Tensor | None
    lengths: Sequence[int] = ()
    counts: Sequence[int] = ()


class GlobalTokens(Positions):
    """Chooses the global tokens: the batch may name them; else they are [CLS] for classification, the question for
    question answering, and none for other tasks."""

    def __init__(self, config: GlobalTokensConfig, sides: Sides) -> None:
        super().__init__()
        self.separator = config.separator
        self.sides = sides

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> GlobalPattern:
        is_global_T = self.global_mask(batch, layout)
        if isinstance(layout, Padded):
            pattern = Pattern(bias=self.padded_bias(is_global_T, layout))
            return GlobalPattern(pattern=pattern, tokens=is_global_T)

        lengths = batch.lengths.tolist()
        counts = [0] * len(lengths)
        tokens_G = None
        if is_global_T is not None and bool(is_global_T.any()):
            tokens_G = is_global_T.nonzero()[:, 0]
            counts = [int(text.sum()) for text in is_global_T.cpu().split(lengths)]

        pattern = Pattern()
        if not is_full_attention(self.sides, max(lengths)):
            global_tokens = None if tokens_G is None else tokens_G.cpu().numpy()
            pattern = Pattern(blocks=window_blocks(lengths, self.sides, batch.input_ids.device, global_tokens))
        return GlobalPattern(pattern=pattern, tokens=tokens_G, lengths=lengths, counts=counts)

    def global_mask(self, batch: Batch, layout: Layout) -> Tensor | None:
        """[T], True for global tokens; None: there are none."""
        if batch.global_tokens is not None:
            return batch.global_tokens

        if "spans" in self.heads:
            return self.question_mask(batch, layout)

        if self.heads & {"classes", "next_sentence"}:
            is_global_T = torch.zeros_like(batch.input_ids, dtype=torch.bool)
            is_global_T[layout.first_tokens] = True
            return is_global_T

        return None

    def question_mask(self, batch: Batch, layout: Layout) -> Tensor:
        """[T], True before the first separator of each text."""
        is_separator = (batch.input_ids == self.separator).long()
        if isinstance(layout, Padded):
            separators_BS = is_separator.view(layout.real.shape) * layout.real
            return (separators_BS.cumsum(1).flatten() == 0) & layout.real.flatten()

        before = F.pad(is_separator.cumsum(0), (1, 0))[layout.first_tokens]  # separators of earlier texts
        lengths_N = copy_to(batch.lengths, before.device)
        before_T = before.repeat_interleave(lengths_N, output_size=batch.num_tokens)
        return is_separator.cumsum(0) == before_T

    def padded_bias(self, is_global_T: Tensor | None, layout: Padded) -> Tensor:
        """0 where a token may attend, [1, B, S, S]."""
        position_BS = layout.position_ids.view(layout.real.shape)
        distance_BSS = position_BS[:, None] - position_BS[:, :, None]
        before, after = self.sides
        allowed_BSS = (distance_BSS >= -before) & (distance_BSS <= after)
        if is_global_T is not None:
            allowed_BSS = allowed_BSS | is_global_T.view(layout.real.shape)[:, None]
        return torch.where(allowed_BSS, 0.0, layout.HIDDEN)[None]


class GlobalAttention(Attention):
    """Window attention for most tokens; global tokens attend to all through projections of their own (section 3.1)."""

    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions) -> None:
        super().__init__(config, sides=sides, positions=positions)
        self.global_query = nn.Linear(config.hidden_size, config.hidden_size)
        self.global_key_value = nn.Linear(config.hidden_size, 2 * config.hidden_size)

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        prepared = context.positions[self.positions]
        assert isinstance(prepared, GlobalPattern)
        dropout = self.dropout if self.training else 0.0

        # All tokens within their windows.
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        attended_TND = prepared.pattern.attend(context.layout, q_TND, k_TND, v_TND, dropout=dropout)
        attended_TH = attended_TND.flatten(1)
        tokens = prepared.tokens
        if tokens is None:
            return attended_TH

        # Then the results of global tokens are replaced.
        k_TND, v_TND = self.global_key_value(x_TH).unflatten(-1, (2, self.num_heads, -1)).unbind(1)
        if isinstance(context.layout, Padded):
            q_TND = self.global_query(x_TH).unflatten(-1, (self.num_heads, -1))
            full_TND = context.layout.attend(q_TND, k_TND, v_TND, sides=FULL, dropout=dropout)
            return torch.where(tokens[:, None], full_TND.flatten(1), attended_TH)

        q_GND = self.global_query(x_TH[tokens]).unflatten(-1, (self.num_heads, -1))
        texts = zip(
            q_GND.split(prepared.counts),
            k_TND.split(prepared.lengths),
            v_TND.split(prepared.lengths),
            strict=True,
        )
        global_GND = self.attend_globally(texts, dropout)
        return attended_TH.index_copy(0, tokens, global_GND.flatten(1))

    def attend_globally(self, texts: Iterable[tuple[Tensor, Tensor, Tensor]], dropout: float) -> Tensor:
        """Attention of the global tokens to their whole text, text by text: [G, N, D]."""
        attended = []
        for text in texts:
            q_NGD, k_NSD, v_NSD = (x.transpose(0, 1)[None] for x in text)
            if q_NGD.shape[2]:
                attended.append(F.scaled_dot_product_attention(q_NGD, k_NSD, v_NSD, dropout_p=dropout)[0])
        return torch.cat(attended, 1).transpose(0, 1)


# --- random blocks ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockPatterns(Prepared):
    """One pattern for all layers, or in training one per layer."""

    patterns: tuple[Pattern, ...]


class RandomBlocks(Positions):
    """Draws the random blocks. In training the draw depends only on the text and the layer, but not on the rest of the
    batch, micro-batches or resuming."""

    def __init__(self, config: RandomBlocksConfig, num_layers: int) -> None:
        super().__init__()
        self.config = config
        self.num_layers = num_layers

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> BlockPatterns:
        if isinstance(layout, Padded):
            return BlockPatterns((Pattern(bias=self.padded_bias(layout)),))
        if int(batch.lengths.max()) <= self.config.max_full_length:
            return BlockPatterns((Pattern(),))

        lengths = batch.lengths.tolist()
        device = batch.input_ids.device
        if not self.training:
            blocks = random_blocks(lengths, self.config, device)
            return BlockPatterns((Pattern(blocks=blocks),))

        texts = [ids.numpy().tobytes() for ids in batch.input_ids.cpu().split(lengths)]
        patterns = []
        for layer in range(self.num_layers):
            keys = [crc32(text, layer) for text in texts]
            patterns.append(Pattern(blocks=random_blocks(lengths, self.config, device, keys)))
        return BlockPatterns(tuple(patterns))

    def padded_bias(self, layout: Padded) -> Tensor:
        """The logarithm of how many times a token attends to another, [1, B, S, S]."""
        size = self.config.size
        block_BS = layout.position_ids.view(layout.real.shape) // size
        length_B11 = layout.real.sum(1)[:, None, None]
        last_B11 = (length_B11 - 1) // size
        query_BS1 = block_BS[:, :, None]
        key_B1S = block_BS[:, None]

        is_full = (query_BS1 == 0) | (query_BS1 == last_B11) | (length_B11 <= self.config.max_full_length)
        is_near = ((query_BS1 - key_B1S).abs() <= 1) | (key_B1S == 0) | (key_B1S == last_B11)
        # Outside of training, the first block stands for each of the random blocks (see `random_blocks`).
        num_random = self.config.num_random * (key_B1S == 0).float()
        times = torch.where(is_full, 1.0, is_near + num_random)
        return times.log().clamp(min=layout.HIDDEN)[None]


class RandomBlockAttention(Attention):
    """Attention by the blocks of one layer."""

    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions, index: int) -> None:
        super().__init__(config, sides=sides, positions=positions)
        self.index = index

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        prepared = context.positions[self.positions]
        assert isinstance(prepared, BlockPatterns)
        pattern = prepared.patterns[self.index % len(prepared.patterns)]

        dropout = self.dropout if self.training else 0.0
        attended_TND = pattern.attend(context.layout, q_TND, k_TND, v_TND, dropout=dropout)
        return attended_TND.flatten(1)
