"""ONNX files of every head and family: beside transformers', and at MiniLM's size beside ours unpadded: lengths 1 to
512, batches of 1 to 64, padded left, right and not at all."""

import pytest
import torch

from bothways.model.checkpoint.checkpoint import Checkpoint
from bothways.model.config import EncoderConfig
from bothways.model.model import Model, initialize
from bothways.settings import Export
from bothways.shrink.export import export, graph
from bothways.shrink.export.graph import Vectors
from bothways.shrink.export.parity import compare, session
from tests.conftest import make_model, tokenizer  # noqa: F401 (fixtures)
from tests.shrink.export.test_export import (
    ENDS,
    HIDDEN,
    LOGITS,
    PLAIN,
    SEGMENTS,
    check_names,
    check_scores,
    save_source,
)  # fmt: skip

pytestmark = pytest.mark.timeout(3600)
LENGTHS, BATCHES = (1, 2, 3, 7, 16, 17, 63, 128, 255, 512), (1, 2, 7, 33, 64)
TOLERANCE = 1e-4
# A small vocabulary, so that a score for each entry at 64 x 512 places fits into memory.
SIZES = {
    "vocab_size": 1001, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536,
}  # fmt: skip
FAMILIES = {
    "bert": {},
    "distilbert": {"type_vocab_size": 0},
    "electra": {"embedding_size": 128},
    "modernbert": {
        "type_vocab_size": 0, "position_embedding": "rotary", "norm": "pre", "feed_forward": "gated",
        "linear_bias": False, "norm_bias": False, "attention_window": 64, "full_attention_every": 3,
        "layer_norm_eps": 1e-5,
    },
}  # fmt: skip
HEADS = [
    {"masked_words": 0, "next_sentence": 2}, {"masked_words": 0}, {"next_sentence": 2}, {"classes": 5}, {"classes": 1},
    {"tokens": 9}, {"spans": 2},
]  # fmt: skip
CASES = [
    *(("bert", heads, Vectors("mean", True)) for heads in HEADS),
    ("bert", {}, Vectors("mean", True)),
    ("electra", {}, Vectors("cls", False)),
    ("modernbert", {}, Vectors("max", True)),
    ("distilbert", {"masked_words": 0}, Vectors("mean", True)),
    ("electra", {"masked_words": 0}, Vectors("mean", True)),
]


@pytest.mark.parametrize(("family", "heads", "vectors"), CASES)
def test_scores_of_every_head_are_ours_at_every_length_batch_and_side(family, heads, vectors, tmp_path):
    model = Model(EncoderConfig(**SIZES, **FAMILIES[family]), heads).eval()
    generator = torch.Generator().manual_seed(3)
    initialize(model, 0.05, generator)  # livelier than a new model's, as a trained one is
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    graph.write(model, vectors, tmp_path / "model.onnx")
    report = compare(
        session(tmp_path / "model.onnx"), Checkpoint(model, model_type=family), vectors, tolerance=TOLERANCE,
        lengths=LENGTHS, batches=BATCHES, most_tokens=max(LENGTHS) * max(BATCHES),
    )  # fmt: skip
    assert len(report.cells) == len(LENGTHS) * len(BATCHES) * 3
    print("\n".join(report.lines()))
    report.check(f"{family} {heads}")


# Families and heads beside those of tests/shrink/export/test_export.py: family, heads, transformers' class; names.
BESIDE = [
    ("bert", {"next_sentence": 2}, "BertForNextSentencePrediction", SEGMENTS, LOGITS),
    ("bert", {"classes": 5}, "BertForSequenceClassification", SEGMENTS, LOGITS),
    ("bert", {"classes": 1}, "BertForSequenceClassification", SEGMENTS, LOGITS),
    ("bert", {"tokens": 5}, "BertForTokenClassification", SEGMENTS, LOGITS),
    ("bert", {"spans": 2}, "BertForQuestionAnswering", SEGMENTS, ENDS),
    ("albert", {}, "AlbertModel", SEGMENTS, HIDDEN),
    ("albert", {"masked_words": 0}, "AlbertForMaskedLM", SEGMENTS, LOGITS),
    ("albert", {"classes": 5}, "AlbertForSequenceClassification", SEGMENTS, LOGITS),
    ("distilbert", {"masked_words": 0}, "DistilBertForMaskedLM", PLAIN, LOGITS),
    ("electra", {}, "ElectraModel", SEGMENTS, HIDDEN),
    ("electra", {"classes": 5}, "ElectraForSequenceClassification", SEGMENTS, LOGITS),
    ("modernbert", {"masked_words": 0}, "ModernBertForMaskedLM", PLAIN, LOGITS),
    ("modernbert", {"classes": 5}, "ModernBertForSequenceClassification", PLAIN, LOGITS),
    ("roberta", {"classes": 5}, "RobertaForSequenceClassification", PLAIN, LOGITS),
    ("longformer", {"classes": 5}, "LongformerForSequenceClassification", PLAIN, LOGITS),
    ("big_bird", {"masked_words": 0}, "BigBirdForMaskedLM", SEGMENTS, LOGITS),
    ("deberta", {"tokens": 5}, "DebertaForTokenClassification", PLAIN, LOGITS),
    ("deberta-v2", {"masked_words": 0}, "DebertaV2ForMaskedLM", PLAIN, LOGITS),
]


@pytest.mark.parametrize("case", BESIDE, ids=lambda case: f"{case[0]}-{'-'.join(case[1])}")
def test_scores_and_names_are_those_of_transformers(case, make_model, tokenizer, tmp_path):  # noqa: F811
    source, out = tmp_path / "model", tmp_path / "onnx"
    save_source(source, *case[:2], make_model, tokenizer, pooling=None if case[1] else "cls")
    export.run(Export(model=source, out=out), print)
    check_names(out, case)
    check_scores(source, out, case)
