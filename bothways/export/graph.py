"""The exported ONNX graph: from input_ids and attention_mask [B, S] to transformers' outputs.

Written by torch's exporter with standard operators only, so that any runtime can read it. Letters: B texts padded to S
tokens, T = B * S; H hidden size.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.model.model import Model
from bothways.model.padded import Padded

# 20 has Gelu and LayerNormalization, one operator each. Measured under ONNX Runtime 1.31 it is as fast as 23, whose
# Attention refuses a mask of keys alone, and as a graph of ONNX Runtime's own fused operators (docs/LOG.md).
OPSET = 20
MOST_BYTES = 2**31 - 2**24  # of weights in one file, since protobuf is limited to 2 GB; more go into a second file
NOISE = (  # the exporter's warnings about its own internals
    (UserWarning, r"# The axis name: .* will not be used, since it shares the same shape constraints"),
    (FutureWarning, r"`isinstance\(treespec, LeafSpec\)` is deprecated"),
)


@dataclass(frozen=True)
class Output:
    """One output: values per token (by_token: [T, ...]) or per text ([N, ...])."""

    name: str
    by_token: bool
    values: Tensor


@dataclass(frozen=True)
class Vectors:
    """How a text's vector is computed: mean, cls or max of its tokens' vectors, optionally scaled to length 1."""

    pooling: str
    normalize: bool

    def __call__(self, hidden_TH: Tensor, places: Padded) -> Tensor:
        """[B, H]"""
        hidden_BSH, real_BS1 = hidden_TH.unflatten(0, places.real.shape), places.real[..., None]
        if self.pooling == "cls":
            vectors_BH = hidden_TH[places.first_tokens]
        elif self.pooling == "max":
            vectors_BH = hidden_BSH.masked_fill(~real_BS1, places.HIDDEN).amax(1)
        else:
            vectors_BH = torch.where(real_BS1, hidden_BSH, 0.0).sum(1) / real_BS1.sum(1).clamp(min=1)
        return nn.functional.normalize(vectors_BH) if self.normalize else vectors_BH


def outputs(model: Model, hidden_TH: Tensor, first_NH: Tensor) -> list[Output]:
    """The heads' outputs for hidden states and texts' states; the hidden states themselves if there is no head."""
    heads = model.num_outputs
    pretraining = {"masked_words", "next_sentence"} <= heads.keys()
    words, follows = ("prediction_logits", "seq_relationship_logits") if pretraining else ("logits", "logits")
    found = []
    if "masked_words" in heads:
        found.append(Output(words, True, model.word_scores(hidden_TH)))
    if "next_sentence" in heads:
        found.append(Output(follows, False, model.text_scores("next_sentence", first_NH)))
    if "classes" in heads:
        found.append(Output("logits", False, model.text_scores("classes", first_NH)))
    if "tokens" in heads:
        found.append(Output("logits", True, model.token_scores("tokens", hidden_TH)))
    if "replaced_tokens" in heads:
        found.append(Output("logits", True, model.token_scores("replaced_tokens", hidden_TH)[:, 0]))
    if "spans" in heads:
        ends = model.token_scores("spans", hidden_TH).unbind(-1)
        found += [Output(name, True, ends_T) for name, ends_T in zip(("start_logits", "end_logits"), ends, strict=True)]
    return found or [Output("last_hidden_state", True, hidden_TH)]


class Graph(nn.Module):
    """The traced module: the model over padded texts. A model without a head also outputs the texts' vectors."""

    def __init__(self, model: Model, vectors: Vectors) -> None:
        super().__init__()
        self.model, self.vectors = model, vectors

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        places = Padded(attention_mask)
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        batch = Batch(input_ids.flatten(), segments.flatten(), places.position_ids, attention_mask.sum(1))
        hidden_TH = self.model(batch, self.model.encoder.build_context(batch, places))
        kind = {"first": "cls", "mean": "mean"}[self.model.config.pooling]
        rows = outputs(self.model, hidden_TH, Vectors(kind, normalize=False)(hidden_TH, places))
        found = {one.name: one.values.unflatten(0, places.real.shape) if one.by_token else one.values for one in rows}
        if not self.model.num_outputs:
            found["sentence_embedding"] = self.vectors(hidden_TH, places)
        return found


def input_names(model: Model) -> list[str]:
    segments = ["token_type_ids"] if model.config.type_vocab_size > 1 else []
    return ["input_ids", "attention_mask", *segments]


def write(model: Model, vectors: Vectors, file: Path) -> None:
    """Write the graph with dynamic batch and length. Weights beyond 2 GB go into a second file, FILE.data."""
    graph = Graph(model, vectors).eval()
    example = {name: torch.ones(2, 5, dtype=torch.long) for name in input_names(model)}
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with torch.inference_mode(), quiet():
        program = torch.onnx.export(
            graph, kwargs=example, dynamo=True, opset_version=OPSET, dynamic_shapes=dict.fromkeys(example, sizes),
            input_names=list(example), output_names=list(graph(**example)), verbose=False,
        )  # fmt: skip
        assert program is not None
        for node in program.model.graph.all_nodes():  # drop the source paths of this machine
            node.metadata_props.clear()
        num_bytes = sum(parameter.nbytes for parameter in model.parameters())
        program.save(file, external_data=num_bytes > MOST_BYTES)


@contextmanager
def quiet(logger: str | None = "torch.onnx") -> Iterator[None]:
    """Suppress the exporter's NOISE, but no other warning, and messages below errors of a logger."""
    told = logging.getLogger(logger)
    level = told.level
    told.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for kind, message in NOISE:
                warnings.filterwarnings("ignore", message=message, category=kind)
            yield
    finally:
        told.setLevel(level)
