"""Classes and numbers from the mean of the tokens: trained, saved, loaded by all libraries, exported."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.cli import info
from bothways.evaluation import evaluate
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.sentence_transformers import DENSE, TRANSFORMER
from bothways.model.config import unit_scale
from bothways.model.heads import SLOPE, build_pooler, initialize_near_identity
from bothways.settings import Classify, Evaluate, Export, Pretrain, Quantize, Regress, Tag
from bothways.shrink import quantize
from bothways.shrink.export import export
from bothways.text.batch import Batch
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.plan import make_plan
from bothways.training.pretraining import pretrain

FILLERS = "the and on a b mat ran".split()
TEXTS = ["the cat sat", "a dog ran on the mat and a b", "cat", "the mat"]


def rows_of(seed, number):
    draw = np.random.default_rng(seed)
    rows = []
    for index in range(number):
        words = draw.choice(FILLERS, int(draw.integers(3, 9))).tolist()
        words.insert(int(draw.integers(len(words) + 1)), ("cat", "dog")[index % 2])
        rows.append({"text": " ".join(words), "label": ("feline", "canine")[index % 2], "score": index % 2 * 3 + 50.0})
        rows[-1] |= {"tokens": words, "tags": ["B-PET" if word in ("cat", "dog") else "O" for word in words]}
    return rows


@pytest.fixture(scope="module")
def folder(make_model, tokenizer, tmp_path_factory):
    """A model that was trained with mean pooling to give vectors, as its directory says, and tables."""
    folder = tmp_path_factory.mktemp("pooling")
    model = make_model("bert", num_hidden_layers=1, pooler=True)
    checkpoint.save(Checkpoint(model, tokenizer, pooling="mean"), folder / "start")
    for name, column in {"classes": "label", "numbers": "score"}.items():
        lines = [json.dumps({"text": row["text"], "label": row[column]}) for row in rows_of(0, 150)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    lines = [json.dumps({name: row[name] for name in ("tokens", "tags")}) for row in rows_of(1, 60)]
    (folder / "tags.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def settings(folder):
    return Classify(
        model=folder / "start", train=folder / "classes.jsonl", out=folder / "run", epochs=2.0, batch_tokens=256,
        learning_rate=3e-3, dropout=0.0, dtype="float32", baselines=False, linear_start=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(settings):
    return run_task(replace(settings, linear_start=True))


def means_of(model, texts):
    """The mean of the last hidden states of each text's tokens, [N, H]; of one length if the model reads them so."""
    means_NH = torch.stack([torch.from_numpy(rows_SH).mean(0) for rows_SH in model.hidden_states(texts)])
    return of_one_length(means_NH) if model.module.config.pooler_act == "unit" else means_NH


def of_one_length(x_NH):
    return unit_scale(x_NH.shape[1]) * torch.nn.functional.normalize(x_NH)


def test_the_head_is_a_linear_layer_on_the_mean_of_all_tokens(result):
    assert result.mean > 0.9
    model = bothways.load(result.model_directory, dtype="float32")
    head = model.module.heads["classes"].output
    expected = torch.softmax(means_of(model, TEXTS) @ head.weight.T + head.bias, -1)
    for prediction, shares in zip(model.classify(TEXTS), expected.tolist(), strict=True):
        assert [*prediction.scores.values()] == pytest.approx(shares, abs=1e-5)
    long = " ".join(["a dog ran on the mat"] * 30)
    windows = model.tokenizer.encode_windows(long, size=64, overlap=16)
    assert len(windows) > 2
    with torch.inference_mode():
        means_WH = torch.stack([model.module(Batch.from_encodings([window])).mean(0) for window in windows])
        (expected,) = torch.softmax(of_one_length(means_WH.mean(0)[None]) @ head.weight.T + head.bias, -1).tolist()
    assert [*model.classify([long], window=64, overlap=16)[0].scores.values()] == pytest.approx(expected, abs=1e-5)


def test_sentence_transformers_gives_its_scores_and_transformers_refuses_it_by_name(result, global_seed):
    import sentence_transformers  # which takes five seconds

    ours = bothways.load(result.model_directory, dtype="float32")
    with torch.inference_mode():
        head = ours.module.heads["classes"].output
        expected = means_of(ours, TEXTS) @ head.weight.T + head.bias
    peer = sentence_transformers.SentenceTransformer(str(result.model_directory), device="cpu")
    scores = torch.from_numpy(peer.encode(TEXTS, show_progress_bar=False))
    assert torch.allclose(scores, expected, atol=1e-4)
    with pytest.raises(ValueError, match="bothways-linear"):
        transformers.AutoModelForSequenceClassification.from_pretrained(result.model_directory)
    with pytest.raises(OSError, match="model.safetensors"):
        transformers.BertForSequenceClassification.from_pretrained(result.model_directory)
    encoder = transformers.AutoModel.from_pretrained(result.model_directory / TRANSFORMER)
    assert torch.equal(encoder.embeddings.word_embeddings.weight, ours.module.encoder.embeddings.words.weight)


@pytest.mark.slow
def test_means_are_read_as_they_are_where_the_checkpoints_vectors_are(settings, folder, tmp_path, global_seed):
    import sentence_transformers  # which takes five seconds

    checkpoint.save(replace(checkpoint.load(folder / "start"), normalized=False), tmp_path / "start")
    changed = replace(settings, model=tmp_path / "start", out=tmp_path / "run", epochs=0.5)
    model = bothways.load(run_task(changed).model_directory, dtype="float32")
    assert model.module.config.pooler_act == "none" and not model.checkpoint.normalized
    head = model.module.heads["classes"].output
    expected = means_of(model, TEXTS) @ head.weight.T + head.bias
    for prediction, shares in zip(model.classify(TEXTS), expected.softmax(-1).tolist(), strict=True):
        assert [*prediction.scores.values()] == pytest.approx(shares, abs=1e-5)
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    scores = torch.from_numpy(peer.encode(TEXTS, show_progress_bar=False))
    assert torch.allclose(scores, expected, atol=5e-4)  # the head, fitted to means of any length, amplifies rounding


def test_a_pooler_of_another_name_is_refused(result, tmp_path):
    checkpoint.save(checkpoint.load(result.model_directory), tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pooler_act": "tanh"}))
    with pytest.raises(InputError, match=r"config\.json: pooler_act 'tanh'"):
        checkpoint.load(tmp_path / "model")


def test_what_is_saved_comes_back_and_is_saved_again(result, tmp_path):
    saved = checkpoint.load(result.model_directory)
    assert (saved.labels, saved.pooling, saved.normalized) == (("canine", "feline"), "mean", True)
    assert (saved.model.config.pooling, saved.model.config.pooler_act) == ("mean", "unit")
    assert "pooler.dense.weight" not in saved.model.state_dict()
    checkpoint.save(saved, tmp_path / "again")
    again = checkpoint.load(tmp_path / "again").model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in saved.model.state_dict().items())
    assert "bothways-linear" not in str(info.describe(result.model_directory)["model"])


@pytest.mark.slow
def test_pooling_cls_reads_the_first_token(settings, tmp_path):
    result = run_task(replace(settings, pooling="cls", out=tmp_path / "run", epochs=0.5))
    _, report = transformers.BertForSequenceClassification.from_pretrained(
        result.model_directory, output_loading_info=True
    )
    assert not any(report.values()) and checkpoint.load(result.model_directory).model.config.pooling == "first"


@pytest.mark.parametrize(("pooling", "expected"), [("mean", "mean"), ("auto", "first")])
def test_without_word_of_a_pooling_auto_is_the_familys_own_head(pooling, expected, settings, folder):
    start = replace(checkpoint.load(folder / "start"), pooling=None)
    plan = make_plan(replace(settings, pooling=pooling), start)
    assert plan.prepare_model(0).model.config.pooling == expected


@pytest.mark.slow
def test_numbers_are_read_off_the_mean_too(folder, settings, tmp_path):
    changed = Regress(
        model=folder / "start", train=folder / "numbers.jsonl", out=tmp_path / "run", epochs=1.0, learning_rate=1e-3,
        dropout=0.0, dtype="float32", batch_tokens=256, baselines=False, linear_start=True,
    )  # fmt: skip
    result = run_task(changed)
    model = bothways.load(result.model_directory, dtype="float32")
    head = model.module.heads["classes"].output
    expected = means_of(model, TEXTS) @ head.weight.T + head.bias
    assert model.regress(TEXTS) == pytest.approx(expected[:, 0].detach().numpy(), abs=1e-3)
    assert 48 < model.regress(TEXTS).mean() < 55


@pytest.mark.slow
@pytest.mark.soak
def test_it_is_measured_predicted_made_int8_and_exported(result, folder, tmp_path):
    file = folder / "classes.jsonl"
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(file,), dtype="float32"))
    assert scores["accuracy"] > 0.9
    texts, labels = ([row[name] for row in rows_of(0, 150)] for name in ("text", "label"))
    quantize.run(Quantize(model=result.model_directory, texts=file, out=tmp_path / "int8", max_drop=50.0))
    int8 = bothways.load(tmp_path / "int8")
    assert int8.module.config.pooling == "mean"
    assert np.mean([one.label == label for one, label in zip(int8.classify(texts), labels, strict=True)]) > 0.8
    export.run(Export(model=result.model_directory, out=tmp_path / "onnx"))  # compares every score with ours
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    assert theirs("the cat")["input_ids"] == bothways.load(result.model_directory).tokenizer.encode("the cat").ids
    assert sorted(path.name for path in (tmp_path / "onnx").iterdir() if path.is_dir()) == []


@pytest.mark.slow
def test_training_continues_from_it(result, settings, folder, tmp_path):
    again = run_task(replace(settings, model=result.directory, out=tmp_path / "classes", epochs=0.5))
    assert checkpoint.load(again.model_directory).model.config.pooling == "mean"
    tagger = Tag(
        model=result.model_directory, train=folder / "tags.jsonl", out=tmp_path / "tags", epochs=0.5, dtype="float32",
        baselines=False, linear_start=False,
    )  # fmt: skip
    tagged = run_task(tagger)
    _, report = transformers.BertForTokenClassification.from_pretrained(
        tagged.model_directory, output_loading_info=True
    )
    assert not any(report.values())
    text = tmp_path / "corpus.txt"
    text.write_text("\n\n".join(row["text"] + ". The cat sat." for row in rows_of(3, 80)), encoding="utf-8")
    changed = Pretrain(
        corpus=(text,), out=tmp_path / "words", from_checkpoint=result.model_directory, steps=2, max_length=32,
        batch_tokens=256, dtype="float32",
    )  # fmt: skip
    assert checkpoint.load(pretrain.run(changed).model_directory).model.config.pooling == "first"


@pytest.mark.parametrize("family", ["albert", "roberta", "electra", "distilbert", "longformer", "big_bird", "deberta"])
def test_every_family_is_saved_with_such_a_head(family, make_model, tokenizer, tmp_path):
    saved = Checkpoint(make_model(family), tokenizer, model_type=family)
    initial = new_head.with_head(saved, "classes", ("a", "b", "c"), seed=0, pooling="mean")
    checkpoint.save(initial, tmp_path / "model")
    again = checkpoint.load(tmp_path / "model")
    assert again.model_type == family and again.labels == ("a", "b", "c")
    assert all(torch.equal(value, again.model.state_dict()[name]) for name, value in initial.model.state_dict().items())


def test_modernberts_own_layout_has_the_mean(make_model, tokenizer, tmp_path):
    saved = Checkpoint(make_model("modernbert"), tokenizer, model_type="modernbert")
    initial = new_head.with_head(saved, "classes", ("a", "b", "c"), seed=0, pooling="mean")
    checkpoint.save(initial, tmp_path / "model")
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert peer.config.classifier_pooling == "mean"
    ids = tokenizer.encode("a dog ran on the mat").ids
    with torch.no_grad():
        expected = peer(input_ids=torch.tensor([ids])).logits[0].softmax(-1).tolist()
    predictions = Predictor(initial, dtype="float32", device="cpu").classify(["a dog ran on the mat"])
    assert [*predictions[0].scores.values()] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "broken", [f"{DENSE}/model.safetensors", f"{TRANSFORMER}/model.safetensors", f"{TRANSFORMER}/config.json"]
)
def test_a_directory_that_lacks_a_part_is_refused_by_its_name(broken, result, tmp_path):
    checkpoint.save(checkpoint.load(result.model_directory), tmp_path / "model")
    (tmp_path / "model" / broken).unlink()
    with pytest.raises((InputError, OSError), match=broken):
        checkpoint.load(tmp_path / "model")


# --- poolers that a checkpoint does not bring -------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["roberta", "distilbert", "electra", "deberta"])
def test_a_new_pooler_keeps_what_a_linear_layer_could_read(family, make_model, global_seed):
    config = make_model(family).config
    pooler = build_pooler(config, ("classes",), pooler=False)
    initialize_near_identity(pooler)
    generator = torch.Generator().manual_seed(0)
    x_NH = torch.randn(400, config.hidden_size, generator=generator)
    with torch.no_grad():
        y_NH = pooler.eval()(x_NH)
    both = torch.cat([y_NH, torch.ones(400, 1)], 1).double()
    rest = x_NH.double() - both @ torch.linalg.lstsq(both, x_NH.double()).solution
    assert rest.square().mean() < 0.03 and SLOPE == 0.125  # of a variance of 1
