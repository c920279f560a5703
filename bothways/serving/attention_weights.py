"""Attention weights of a layer and head: softmax(q k^T / sqrt(D) + bias) of the model's queries and keys.

The layers run with a layout that keeps the arguments of their attention. Letters: S tokens, N heads, D head size.
"""

from typing import Any

import torch
from torch import Tensor

from bothways.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.encoder import Encoder
from bothways.model.layout import Bias, Bucketed, Layout, Sides, window_mask
from bothways.text.batch import Batch

MAX_TOKENS = 64


class RecordingLayout(Bucketed):
    """Bucketed, for one text; keeps the weights [N, S, S] of each layer."""

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        super().__init__(lengths, device)
        self.weights_NSS: list[Tensor] = []

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        q_NSD, k_NSD = q_TND.transpose(0, 1), k_TND.transpose(0, 1)
        scores_NSS = (q_NSD @ k_NSD.mT).float() / q_NSD.shape[-1] ** 0.5
        if bias is not None:
            scores_NSS = scores_NSS + bias(q_NSD[:, None], k_NSD[:, None])[:, 0]
        mask_SS = window_mask(len(q_TND), sides, q_TND.device)
        self.weights_NSS.append(scores_NSS.masked_fill(~mask_SS, -torch.inf).softmax(-1))
        return super().attend(q_TND, k_TND, v_TND, sides=sides, dropout=dropout, bias=bias)


def attention_weights(model: Predictor, text: str, *, layer: int, head: int) -> dict[str, Any]:
    """Tokens of a short text, and for each the weights of all tokens in a layer and head. InputError if the text is too
    long, there is no such layer or head, or the model's attention is sparse."""
    encoder, encoding = model.module.encoder, model.tokenizer.encode(text)
    config = model.module.config
    if len(encoding) > MAX_TOKENS:
        raise InputError(f"the text has {len(encoding)} tokens; attention is for at most {MAX_TOKENS}, shorten it")
    for name, number, count in (
        ("layer", layer, config.num_hidden_layers),
        ("head", head, config.num_attention_heads),
    ):
        if not 0 <= number < count:
            raise InputError(f"{name} ({number}) must be from 0 to {count - 1}")
    if config.sparse_attention is not None or not isinstance(encoder, Encoder):
        raise InputError(f"the attention of a model of type {model.description.model_type} cannot be shown")
    batch = Batch.from_encodings([encoding]).to(model.device)
    layout: Layout = RecordingLayout(batch.lengths, model.device)
    with torch.inference_mode():
        encoder(batch, encoder.build_context(batch, layout))
    assert isinstance(layout, RecordingLayout)
    return {"tokens": encoding.tokens, "weights": layout.weights_NSS[layer][head].cpu().tolist()}
