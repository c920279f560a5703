"""Heads on the mean of the tokens as one more encoder layer: transformers computes our scores from it."""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.checkpoint.checkpoint import unread_warning
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.formats import FORMATS, format_of
from bothways.model.checkpoint.formats.linear import LinearFormat
from bothways.model.checkpoint.formats.mean_layer import MEAN_HEAD, MeanLayerFormat
from bothways.model.checkpoint.mean_layer import find_mean_layer

TEXTS = ["the cat sat", "a dog ran on the mat and a b", "cat", "the mat"]
LABELS = ("a", "b", "c")
FAMILIES = ["bert", "roberta"]


@pytest.fixture
def build(make_model, tokenizer):
    """A classifier of a family on the mean, scaled to length 1 or not; two gammas are almost zero, as in MiniLM."""

    def build(family="bert", pooling="unit", labels=LABELS, dead=2, **options):
        saved = Checkpoint(make_model(family), tokenizer, model_type=family)
        made = new_head.with_head(saved, "classes", labels, seed=0, pooling=pooling, **options)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            made.model.encoder.layers[-1].feed_forward_norm.weight[3 : 3 + dead] = 1e-5
            output = made.model.heads["classes"].output
            output.weight.copy_(torch.randn(output.weight.shape, generator=generator) / 2)
            output.bias.copy_(torch.randn(output.bias.shape, generator=generator))
        return made

    return build


def ours(made):
    model = Predictor(made, dtype="float32", device="cpu")
    if not made.labels:
        return torch.tensor(model.regress(TEXTS))[:, None]
    return torch.tensor([[*prediction.scores.values()] for prediction in model.classify(TEXTS)])


def theirs(directory, made):
    """The scores of transformers' own class on a padded batch."""
    peer, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32
    )
    assert not any(report.values())
    encoded = [made.tokenizer.encode(text).ids for text in TEXTS]
    ids = torch.full((len(TEXTS), max(map(len, encoded))), made.tokenizer.pad_id)
    for row, own in zip(ids, encoded, strict=True):
        row[: len(own)] = torch.tensor(own)
    mask = torch.arange(ids.shape[1]) < torch.tensor([[len(own)] for own in encoded])
    with torch.inference_mode():
        logits = peer.eval()(input_ids=ids, attention_mask=mask.long()).logits
    if not made.labels:
        return logits
    return logits.sigmoid() if made.multi_label else logits.softmax(-1)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("pooling", ["unit", "mean"])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_computes_our_probabilities(family, pooling, multi_label, build, tmp_path, global_seed):
    import sentence_transformers  # which takes five seconds

    made = replace(build(family, pooling), multi_label=multi_label)
    assert isinstance(format_of(made), MeanLayerFormat)
    checkpoint.save(made, tmp_path / "model")
    expected = ours(made)
    assert expected.std(0).min() > 0.005
    torch.testing.assert_close(theirs(tmp_path / "model", made), expected.float(), atol=1e-4, rtol=0)
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    logits = torch.from_numpy(peer.encode(TEXTS, show_progress_bar=False))
    scores = logits.sigmoid() if multi_label else logits.softmax(-1)
    torch.testing.assert_close(scores, expected.float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("pooling", ["unit", "mean"])
def test_transformers_computes_our_numbers(pooling, build, tmp_path):
    made = build("bert", pooling, (), num_outputs=1)
    checkpoint.save(made, tmp_path / "model")
    torch.testing.assert_close(theirs(tmp_path / "model", made), ours(made).float(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("pooling", ["unit", "mean"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bothways_reads_the_same_bits_without_the_layer(family, pooling, build, tmp_path):
    made = build(family, pooling)
    checkpoint.save(made, tmp_path / "model")
    loaded = checkpoint.load(tmp_path / "model")
    assert loaded.model.config == made.model.config and loaded.labels == LABELS and loaded.pooling == "mean"
    state = loaded.model.state_dict()
    assert state.keys() == made.model.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in made.model.state_dict().items())
    checkpoint.save(loaded, tmp_path / "again")
    for name in ("model.safetensors", MEAN_HEAD, "config.json", "2_Dense/model.safetensors"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_pipeline_names_the_label(build, tmp_path):
    made = build()
    checkpoint.save(made, tmp_path / "model")
    classify = transformers.pipeline("text-classification", str(tmp_path / "model"), device="cpu")
    best = ours(made).max(1)
    for text, score, index in zip(TEXTS, best.values.tolist(), best.indices.tolist(), strict=True):
        assert classify(text)[0] == {"label": LABELS[index], "score": pytest.approx(score, abs=1e-4)}


def test_a_model_without_a_spare_direction_keeps_the_format_of_linear_heads(build, tmp_path):
    made = build(dead=0)
    assert find_mean_layer(made) is None and isinstance(format_of(made), LinearFormat)
    checkpoint.save(made, tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["model_type"] == "bothways-linear"
    assert "sentence-transformers compute" in unread_warning(made) and "--pooling cls" in unread_warning(made)
    assert unread_warning(build()) is None
    assert unread_warning(build(pooling="pair")).startswith("only Bothways computes")


def test_directories_in_the_format_of_linear_heads_load(build, tmp_path):
    made = build()
    checkpoint.save(made, tmp_path / "model", FORMATS["bothways-linear"]())
    torch.testing.assert_close(ours(checkpoint.load(tmp_path / "model")), ours(made))


def test_more_classes_than_the_layer_has_room_for(build):
    names = tuple(f"L{index}" for index in range(12))
    assert find_mean_layer(build("bert", "mean", names[:11])) is not None
    assert find_mean_layer(build("bert", "mean", names)) is None  # 2 x 12 + 2 > 24


def test_damaged_directories_are_refused_by_name(build, tmp_path):
    made = build()
    checkpoint.save(made, tmp_path / "model")
    file, config = tmp_path / "model" / MEAN_HEAD, tmp_path / "model/config.json"
    content = json.loads(config.read_text())
    for change in ({"pooler_act": "tanh"}, {"num_hidden_layers": 1}, {"num_hidden_layers": "3"}):
        config.write_text(json.dumps({**content, **change}))
        with pytest.raises(InputError, match=rf"config\.json: {next(iter(change))}"):
            checkpoint.load(tmp_path / "model")
    config.write_text(json.dumps(content))
    file.unlink()
    with pytest.raises(InputError, match=r"mean_head\.safetensors: not found, though config\.json declares it"):
        checkpoint.load(tmp_path / "model")
