"""Pruning: cut models equal masked ones, importance follows the slow formula, targets, training, what is written."""

import json
import re

import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.card_file import CARD
from bothways.model.checkpoint.changes.cut import cut, cut_vocabulary
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify, Prune
from bothways.shrink import prune
from bothways.shrink.cutting import encoder_weights, measure_importance
from bothways.shrink.structures import Structure, structure_of_share, structures_to, weights_of
from bothways.tasks.classify.training import Classification
from bothways.text.batch import Batch
from bothways.text.data.split_tables import read_tables
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.shrink.conftest import with_drops

TEXTS = ["the cat sat on the mat", "a dog", "dogs ran and ran and sat on the mat , the cat", "b"]


@pytest.fixture
def made(make_model, tokenizer):
    def make(family="bert", heads=None, **changes):
        return Checkpoint(make_model(family, heads or {"classes": 3}, **changes), tokenizer, model_type=family)

    return make


def hidden(loaded, texts=TEXTS):
    with torch.no_grad():
        return loaded.model(Batch.from_encodings(loaded.need_tokenizer().encode_many(texts)))


# --- cutting ----------------------------------------------------------------------------------------------------------

HEADS, NEURONS = [[0, 2], [1, 2], [0, 1]], [[*range(0, 40, 2)], [*range(20)], [*range(20, 40)]]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert"])
def test_a_cut_model_equals_the_whole_one_with_zeros(family, made):
    whole = made(family)
    layers = range(whole.model.config.num_hidden_layers)
    heads, neurons = [HEADS[layer % 3] for layer in layers], [NEURONS[layer % 3] for layer in layers]
    small = cut(whole, layers=layers, heads=heads, neurons=neurons)
    assert encoder_weights(small.model.config) < 0.7 * encoder_weights(whole.model.config)
    with torch.no_grad():
        for index, layer in enumerate(whole.model.encoder.layers):
            removed = [head for head in range(3) if head not in heads[index]]
            layer.attention.output.weight.unflatten(1, (3, -1))[:, removed] = 0
            layer.feed_forward.output.weight[:, [one for one in range(40) if one not in neurons[index]]] = 0
    assert torch.allclose(hidden(small), hidden(whole), atol=1e-6 * float(hidden(whole).abs().max()))


def test_kept_layers_are_those_of_the_model(made):
    whole = made()
    small = cut(whole, layers=[0, 2])
    assert torch.equal(
        small.model.encoder.layers[1].attention.qkv.weight, whole.model.encoder.layers[2].attention.qkv.weight
    )
    assert small.model.config.num_hidden_layers == 2 and small.model.config.attention_head_size is None


def test_a_smaller_vocabulary_leaves_its_texts_unchanged(made):
    whole = made(heads={"masked_words": 0})
    small = cut_vocabulary(whole, {"the": 5, "cat": 1, "sat": 2, "dogs": 1, ",": 1})
    texts = ["the cat sat", "dogs , the dogs sat"]
    assert small.model.config.vocab_size < 97 and "mat" not in small.tokenizer.vocab
    tokens = [[one.tokens for one in loaded.need_tokenizer().encode_many(texts)] for loaded in (small, whole)]
    assert tokens[0] == tokens[1]
    assert torch.allclose(hidden(small, texts), hidden(whole, texts), atol=1e-6)
    ids = torch.tensor([whole.tokenizer.vocab[token] for token in small.tokenizer.tokens])
    scores = [loaded.model.word_scores(hidden(loaded, texts)) for loaded in (small, whole)]
    assert torch.allclose(scores[0], scores[1][:, ids], atol=1e-5)


@pytest.mark.parametrize(
    ("lowercase", "text"),
    [
        (True, "never? (yes!) it's 5-7: \u201cno\u201d"),
        (False, "QUIZ McD USA zoO"),
        (False, "\u0939\u093f\u0928\u094d\u0926\u0940 \u0416\u0443\u043a \u6771\u4eac \u20ac5 \u00e9t\u00e9"),
    ],
)
def test_a_text_that_was_spelled_out_is_still_after_the_vocabulary_is_cut(lowercase, text, make_model):
    characters = sorted({*text.replace(" ", ""), *"cat"})
    tokens = [*SPECIAL_TOKENS, *characters, *(f"##{one}" for one in characters), "cat", "##at", "no", "USA"]
    words = Tokenizer({token: index for index, token in enumerate(tokens)}, lowercase=lowercase)
    whole = Checkpoint(make_model("bert", {"classes": 3}, vocab_size=len(words)), words, model_type="bert")
    small = cut_vocabulary(whole, {"cat": 1}).need_tokenizer()
    assert words.unknown_id not in words.ids(text) and small.tokens == [*tokens[:-3]]
    assert small.unknown_id not in small.ids(text)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_model_without_some_heads_is_stored_and_read_again(family, made, tmp_path):
    whole = made(family)
    small = cut(whole, layers=range(3), heads=HEADS)
    checkpoint.save(small, tmp_path / "small")
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["model_type"] == "bothways-pruned" and not (tmp_path / "small" / "model.safetensors").exists()
    read = checkpoint.load(tmp_path / "small")
    assert read.model.config.head_size == 8 and read.model.config.num_attention_heads == 2
    assert torch.equal(hidden(read), hidden(small))
    config["pruning_config"]["attention_head_size"] = "many"
    (tmp_path / "small" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"attention_head_size \('many'\) must be an integer"):
        checkpoint.load(tmp_path / "small")


def test_a_model_without_some_heads_is_stored_in_int8(made, tmp_path):
    from bothways.model.int8_training import calibrate_fake_int8, deploy_fake_int8, install_fake_int8

    small = cut(made(), layers=range(3), heads=HEADS)
    install_fake_int8(small.model)
    calibrate_fake_int8(small.model, lambda: hidden(small))
    deploy_fake_int8(small.model.eval())
    checkpoint.save(small, tmp_path / "int8")
    read = checkpoint.load(tmp_path / "int8")
    assert read.model.config.num_attention_heads == 2 and torch.equal(hidden(read), hidden(small))


@pytest.mark.soak
def test_a_model_without_some_heads_is_exported(made, tmp_path):
    from bothways.settings import Export
    from bothways.shrink.export import export

    small = cut(made(), layers=range(3), heads=HEADS)
    checkpoint.save(small, tmp_path / "small")
    found = export.run(Export(model=tmp_path / "small", out=tmp_path / "onnx"), lambda *lines: None)
    assert found["parity"]["greatest"]["logits"] < 1e-5


def test_other_libraries_get_the_same_function_with_zeros(made):
    from bothways.model.checkpoint.changes.cut import fill_heads

    small = cut(made(), layers=range(3), heads=HEADS)
    full = fill_heads(small)
    assert full.model.config.attention_head_size is None and full.model.config.num_attention_heads == 3
    assert torch.allclose(hidden(full), hidden(small), atol=1e-6)


# --- importance -------------------------------------------------------------------------------------------------------


def test_importance_is_the_first_order_change_of_the_loss(make_model, tokenizer, data, tmp_path):
    model = make_model("bert", {"classes": 2})
    settings = Classify(model=tmp_path, train=data, out=tmp_path / "run", baselines=False)
    task = Classification.build(settings, Checkpoint(model, tokenizer, labels=("a", "b")), read_tables(settings))
    examples, rows = task.data["train"], [0, 5, 7]
    found = measure_importance(model, task.objective, examples, rows, torch.device("cpu"))
    heads, neurons = torch.zeros(3), torch.zeros(40)
    for row in rows:  # slow: scale each part by 1 and take the derivative with respect to the scale
        scales = {"heads": torch.ones(3, requires_grad=True), "neurons": torch.ones(40, requires_grad=True)}
        layer = model.encoder.layers[1]
        handles = [
            layer.attention.output.register_forward_pre_hook(
                lambda _, x, scale=scales["heads"]: (x[0] * scale.repeat_interleave(8),)
            ),
            layer.feed_forward.output.register_forward_pre_hook(lambda _, x, scale=scales["neurons"]: (x[0] * scale,)),
        ]
        batch = examples.batch([row])
        task.objective.label_loss(task.objective.forward(model, batch), batch)[0].backward()
        for handle in handles:
            handle.remove()
        heads, neurons = heads + scales["heads"].grad.abs(), neurons + scales["neurons"].grad.abs()
    assert torch.allclose(found.heads[1], heads, atol=1e-5) and torch.allclose(found.neurons[1], neurons, atol=1e-5)
    assert found.best_neurons(3, [1]) == [sorted(neurons.topk(3).indices.tolist())]


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "parts", "layers", "least"),
    [
        (0.5, ("layers", "feed-forward"), 2, 0.4),
        (1 / 3, ("layers",), 1, 0.33),
        (0.7, ("feed-forward",), 3, 0.55),
        (0.5, ("heads", "feed-forward"), 3, 0.35),
    ],
)
def test_a_share_of_the_weights_is_reached_from_below(share, parts, layers, least, make_model):
    config = make_model().config
    found = structure_of_share(config, share, parts)
    reached = weights_of(config, found) / encoder_weights(config)
    assert found.layers == layers and least <= reached <= share + 0.01
    assert ("heads" in parts) == (found.heads < 3)
    steps = [*structures_to(config, found, None)]
    assert steps[-1] == found and len(steps) == (3 - layers or 2)


def test_a_share_that_the_parts_do_not_have_is_refused(make_model):
    with pytest.raises(InputError, match=r"size \(0.2\) cannot be reached by cutting feed-forward: the least is 0\.6"):
        structure_of_share(make_model().config, 0.2, ("feed-forward",))


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pruned(model, data, tmp_path_factory):
    settings = Prune(
        model=model, texts=data, out=tmp_path_factory.mktemp("pruned") / "out", size=0.5, epochs=2.0, dtype="float32",
        parts=("layers", "heads", "feed-forward"),
    )  # fmt: skip
    return prune.run(settings)


def test_a_model_is_cut_in_steps_to_its_target(pruned, model):
    assert pruned.measured[0].name == "as it was" and len(pruned.measured) == 2
    assert pruned.best.share <= 0.51 and pruned.kept == 1
    assert {file.name for file in pruned.directory.iterdir()} >= {"bothways.json", "model", "report.html"}
    assert not (pruned.directory / "cuts").exists()
    small = bothways.load(pruned.directory, dtype="float32")
    before = bothways.load(model, dtype="float32")
    assert small.labels == before.labels and small.task == "classify"
    assert small.module.config.num_hidden_layers == 2 and small.module.config.num_attention_heads < 3
    assert any("only Bothways reads it" in line for line in pruned.lines())
    assert pruned.best.drop.points == pytest.approx(pruned.measured[0].score - pruned.best.score)
    recorded = json.loads((pruned.directory / "model" / "bothways.json").read_text())["prune"]
    assert recorded["from"] == str(model) and len(recorded["measured"]) == 2


def test_the_card_of_a_smaller_model_says_what_it_loses(pruned, model, data):
    card = (pruned.directory / "model" / CARD).read_text(encoding="utf-8")
    before, after = pruned.measured
    assert "# A text classifier" in card and "2 labels: `a`, `b`" in card
    assert f"| as it was | {before.size / 1e6:.1f} | {before.score:.2f} | |" in card
    low, high = after.drop.interval
    assert f"| {after.score:.2f} | {after.drop.points:z.2f} ({low:z.2f} to {high:z.2f}) |" in card
    assert f"Measured on {pruned.split}, {pruned.rows} rows." in card and "too high" not in card
    assert "Only Bothways reads the whole model." in card  # it has fewer heads
    assert str(model) not in card and str(data) not in card


def test_the_smallest_model_within_the_drop_is_kept(model, data, tmp_path, monkeypatch):
    with_drops(monkeypatch, [0.0, 0.2, 0.9])
    settings = Prune(model=model, texts=data, out=tmp_path / "out", max_drop=0.5, epochs=0.3, dtype="float32")
    result = prune.run(settings)
    assert (len(result.measured), result.kept, result.notes) == (3, 1, ())
    assert bothways.load(result.directory).module.config.num_hidden_layers == 2
    assert "<- kept" in result.lines()[2]


def test_nothing_is_kept_if_the_first_cut_loses_too_much(model, data, tmp_path, monkeypatch):
    with_drops(monkeypatch, [0.0, 9.0])
    settings = Prune(model=model, texts=data, out=tmp_path / "out", max_drop=0.5, epochs=0.3, dtype="float32")
    with pytest.raises(InputError, match=r"the first cut loses 9.00 points of accuracy on dev"):
        prune.run(settings)
    assert not (settings.out / "model").exists()


def test_a_stopped_pruning_goes_on(model, data, tmp_path, monkeypatch):
    settings = Prune(model=model, texts=data, out=tmp_path / "out", size=0.3, epochs=0.5, dtype="float32")
    train, calls = prune.PruningPlan.train, []

    def once(self, number, *arguments, **options):
        calls.append(number)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(self, number, *arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prune.PruningPlan, "train", once)
        prune.run(settings)
    resumed = prune.run(prune.replace(settings, resume=True))
    straight = prune.run(prune.replace(settings, out=tmp_path / "straight"))
    weights = [(result.model / "model.safetensors").read_bytes() for result in (resumed, straight)]
    assert weights[0] == weights[1] and [one.score for one in resumed.measured] == [
        one.score for one in straight.measured
    ]


def test_a_smaller_vocabulary_needs_no_training(model, data, class_rows, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat\n", encoding="utf-8")
    settings = Prune(model=model, texts=data, out=tmp_path / "small", vocabulary_from=(corpus,), dtype="float32")
    small = prune.run(settings)
    assert (
        "vocabulary: " in small.best.name and small.best.size < small.measured[0].size and small.best.drop.points == 0
    )
    before, after = bothways.load(model, dtype="float32"), bothways.load(small.directory, dtype="float32")
    assert after.module.config.vocab_size < before.module.config.vocab_size
    texts = [row["text"] for row in class_rows(9)]
    expected = [one.score for one in before.classify(texts)]
    assert [one.score for one in after.classify(texts)] == pytest.approx(expected, abs=1e-6)


def test_a_speed_is_measured_before_any_training(model, data, tmp_path, monkeypatch):
    measured = []

    def speed(sample, first, smaller):
        measured.append(smaller.checkpoint.model.config)
        return 0.5 + 3 / measured[-1].num_hidden_layers / 2

    monkeypatch.setattr(prune.measuring, "relative_speed", speed)
    settings = Prune(model=model, texts=data, out=tmp_path / "out", speed=1.2, epochs=0.3, dtype="float32")
    result = prune.run(settings)
    assert result.best.name == "2 of 3 layers" and len(measured) > 1
    with pytest.raises(InputError, match=r"speed \(9\) cannot be reached by cutting layers and feed-forward: 2.00 at"):
        prune.run(prune.replace(settings, speed=9.0, out=tmp_path / "other"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "prune needs a target"),
        ({"size": 0.5, "speed": 2.0}, "size and speed exclude each other"),
        ({"size": 1.5}, r"size \(1.5\) must be from 0.01 to 0.99"),
        ({"speed": 0.5}, r"speed \(0.5\) must be from 1.01 to 100"),
    ],
)
def test_targets_that_make_no_sense_are_refused(options, message, model, data, tmp_path):
    with pytest.raises(InputError, match=message):
        Prune(model=model, texts=data, out=tmp_path / "out", **options)


def test_models_that_cannot_be_pruned_are_refused_by_name(made, data, tmp_path):
    for loaded, parts, message in (
        (made("albert"), ("layers",), "layers of albert cannot be pruned: its layers share weights"),
        (made("deberta-v2"), ("heads",), "heads of deberta-v2 cannot be pruned"),
        (made(heads={"masked_words": 0}), (), "a model for fill cannot be pruned here"),
    ):
        folder = tmp_path / loaded.model_type / ("heads" if parts else "none")
        checkpoint.save(loaded, folder)
        settings = Prune(model=folder, texts=data, out=tmp_path / "out", size=0.5, parts=parts)
        with pytest.raises(InputError, match=re.escape(message)):
            prune.run(settings)
        assert not settings.out.exists()


def test_sizes_are_printed_as_they_are():
    assert str(Structure(1, 12, 768)) == "1 layer, 12 heads, 768 neurons"
    assert Structure(3, 12, 768).name(Structure(6, 12, 1536)) == "3 of 6 layers, 768 of 1,536 neurons"
