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

from bothways.model.layout import Padded
from bothways.model.model import Model
from bothways.text.batch import Batch

# Opset 20 has Gelu and LayerNormalization as single operators. Under ONNX Runtime 1.31 it is as fast as 23, whose
# Attention does not accept a mask of keys only, and as ONNX Runtime's own fused operators (docs/LOG.md).
OPSET = 20
MOST_BYTES = 2**31 - 2**24  # bytes of weights in one file, since protobuf is limited to 2 GB
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

    def __call__(self, hidden_TH: Tensor, layout: Padded) -> Tensor:
        """[B, H]"""
        hidden_BSH = hidden_TH.unflatten(0, layout.real.shape)
        real_BS1 = layout.real[..., None]

        if self.pooling == "cls":
            vectors_BH = hidden_TH[layout.first_tokens]
        elif self.pooling == "max":
            vectors_BH = hidden_BSH.masked_fill(~real_BS1, layout.HIDDEN).amax(1)
        else:
            vectors_BH = torch.where(real_BS1, hidden_BSH, 0.0).sum(1) / real_BS1.sum(1).clamp(min=1)
        return nn.functional.normalize(vectors_BH) if self.normalize else vectors_BH


def write(model: Model, vectors: Vectors | None, file: Path) -> None:
    """Write the graph with dynamic batch and length. Weights beyond 2 GB go into a second file, FILE.data.

    model: to trace.
    vectors: also output the hidden states, and the texts' vectors; None: neither.
    file: of the graph.
    """
    graph = Graph(model, vectors).eval()
    example = {name: torch.ones(2, 5, dtype=torch.long) for name in input_names(model)}
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}

    with torch.inference_mode(), quiet():
        program = torch.onnx.export(
            graph,
            kwargs=example,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=dict.fromkeys(example, sizes),
            input_names=list(example),
            output_names=list(graph(**example)),
            verbose=False,
        )
        assert program is not None
        for node in program.model.graph.all_nodes():  # remove the source paths of this machine
            node.metadata_props.clear()
        num_bytes = sum(parameter.nbytes for parameter in model.parameters())
        program.save(file, external_data=num_bytes > MOST_BYTES)


def input_names(model: Model) -> list[str]:
    names = ["input_ids", "attention_mask"]
    if model.config.type_vocab_size > 1:
        names.append("token_type_ids")
    return names


class Graph(nn.Module):
    """The traced module: the model over padded texts. vectors: also output the hidden states, and the texts' vectors;
    None: neither."""

    def __init__(self, model: Model, vectors: Vectors | None) -> None:
        super().__init__()
        self.model = model
        self.vectors = vectors

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        layout = Padded(attention_mask)
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        batch = Batch(
            input_ids=input_ids.flatten(),
            segment_ids=segments.flatten(),
            position_ids=layout.position_ids,
            lengths=attention_mask.sum(1),
        )
        hidden_TH = self.model(batch, self.model.encoder.build_context(batch, layout))

        pooling = {"first": "cls", "mean": "mean"}[self.model.config.pooling]
        text_states_BH = Vectors(pooling, normalize=False)(hidden_TH, layout)
        results = {}
        for output in outputs(self.model, hidden_TH, text_states_BH, has_states=self.vectors is not None):
            if output.by_token:
                results[output.name] = output.values.unflatten(0, layout.real.shape)
            else:
                results[output.name] = output.values
        if self.vectors is not None:
            results["sentence_embedding"] = self.vectors(hidden_TH, layout)
        return results


def outputs(model: Model, hidden_TH: Tensor, first_NH: Tensor, *, has_states: bool = False) -> list[Output]:
    """The outputs of the heads, by the names of transformers.

    model: whose heads are computed.
    hidden_TH: hidden states.
    first_NH: text states.
    has_states: the hidden states are an output too, as they are if there is no head.
    """
    heads = model.num_outputs
    # With both heads of pre-training transformers names them; a head alone is "logits".
    words_name = "logits"
    texts_name = "logits"
    if {"masked_words", "next_sentence"} <= heads.keys():
        words_name = "prediction_logits"
        texts_name = "seq_relationship_logits"

    results = []
    if "masked_words" in heads:
        results.append(Output(words_name, by_token=True, values=model.word_scores(hidden_TH)))
    for head in ("next_sentence", "classes"):
        if head in heads:
            results.append(Output(texts_name, by_token=False, values=model.text_scores(head, first_NH)))
    if "tokens" in heads:
        results.append(Output("logits", by_token=True, values=model.token_scores("tokens", hidden_TH)))
    if "replaced_tokens" in heads:
        results.append(Output("logits", by_token=True, values=model.token_scores("replaced_tokens", hidden_TH)[:, 0]))
    if "spans" in heads:
        start_T, end_T = model.token_scores("spans", hidden_TH).unbind(-1)
        results.append(Output("start_logits", by_token=True, values=start_T))
        results.append(Output("end_logits", by_token=True, values=end_T))
    if has_states or not results:
        results.append(Output("last_hidden_state", by_token=True, values=hidden_TH))
    return results


@contextmanager
def quiet(name: str | None = "torch.onnx") -> Iterator[None]:
    """Suppress the warnings in NOISE, and messages below errors of the logger `name`."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for kind, message in NOISE:
                warnings.filterwarnings("ignore", message=message, category=kind)
            yield
    finally:
        logger.setLevel(level)
