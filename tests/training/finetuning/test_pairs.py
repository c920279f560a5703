"""Pairs of texts that are encoded separately: features, training, saved models, the rule for `--pooling auto`."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import bothways
from bothways.base.errors import InputError
from bothways.evaluation import evaluate
from bothways.model.checkpoint import checkpoint
from bothways.settings import Classify, Evaluate, Export, Quantize, Regress
from bothways.shrink import quantize
from bothways.shrink.export import export
from bothways.tasks import texts as text_task
from bothways.tasks.classify.training import Classification
from bothways.tasks.regress.training import Regression
from bothways.text.data.split_tables import read_tables
from bothways.training.finetuning.finetune import run as run_task

VECTORS = {"pooling": "mean", "normalized": True}
LONG = " ".join(["the cat ran on a mat and"] * 5)


def rows_of(seed, number):
    """Pairs: whether the first names an animal that the second lacks, which depends on the order; and the overlap."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        one, other = ((draw.choice(["the", "a", "on", "mat", "ran"], 4)).tolist() for _ in range(2))
        animals = draw.choice(["cat", "dog", "and"], 2)
        pair = {"text": " ".join([*one, animals[0]]), "pair": " ".join([*other, animals[1]])}
        rows.append({**pair, "label": ("no", "yes")[int(animals[0] == "cat" and animals[1] != "cat")]})
        rows[-1]["score"] = len({*one, animals[0]} & {*other, animals[1]})
    return rows


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of(options=VECTORS, num_hidden_layers=1, pooler=True)


@pytest.fixture(scope="module")
def rows():
    rows = rows_of(0, 150)
    rows[3]["text"] = rows[7]["pair"] = rows[144]["pair"] = LONG
    return rows


@pytest.fixture(scope="module")
def run(start, rows, finetuned):
    options = {"model": start, "train": rows[:120], "test": rows[120:], "window": 16, "epochs": 6.0}
    return finetuned(Classify, **options, baselines=True, linear_start=True)


def texts_of(rows):
    return [[row[name] for row in rows] for name in ("text", "pair")]


def test_the_head_reads_vectors_difference_and_product(run, rows):
    model, (first, second) = run.predictor, texts_of(rows)
    assert model.module.config.pooler_act == "pair" and run.result.mean > 0.8
    short = [row for row in range(len(rows)) if LONG not in (first[row], second[row])]
    states = (model.hidden_states([texts[row] for row in short]) for texts in (first, second))
    means = (torch.from_numpy(np.stack([x_SH.mean(0) for x_SH in own])) for own in states)
    u_NH, v_NH = (model.module.pooler.length * normalize(mean_NH) for mean_NH in means)
    features = torch.cat([u_NH, v_NH, (u_NH - v_NH).abs(), u_NH * v_NH], 1)
    expected = model.module.heads["classes"].output(features).softmax(-1).detach().numpy()
    shares = np.array([[*one.scores.values()] for one in model.classify(first, second)])
    assert np.allclose(shares[short], expected, atol=1e-5)
    assert np.abs(shares - [[*one.scores.values()] for one in model.classify(second, first)]).max() > 0.1
    right = [one.label == row["label"] for one, row in zip(model.classify(first, second), rows, strict=True)]
    assert np.mean(right[120:]) == run.result.mean  # in the windows of the training, with the long pair


def test_the_saved_model_is_loaded_measured_and_refused_by_name(run, rows, start, table, tmp_path, global_seed):
    import sentence_transformers  # which takes five seconds

    first, second = texts_of(rows)
    expected = [one.scores for one in run.predictor.classify(first, second)]
    run.predictor.save(tmp_path / "again")
    assert [
        one.scores for one in bothways.load(tmp_path / "again", dtype="float32").classify(first, second)
    ] == expected
    scores = evaluate.run(Evaluate(model=run.result.model_directory, file=(table(rows[120:]),), dtype="float32"))
    assert scores["accuracy"] == run.result.mean
    peer = sentence_transformers.SentenceTransformer(str(run.result.model_directory), device="cpu")
    assert np.allclose(peer.encode(first[:2]), run.predictor.embed(first[:2]), atol=1e-5)
    quantize.run(Quantize(model=run.result.model_directory, texts=table(rows), out=tmp_path / "int8", max_drop=50.0))
    assert bothways.load(tmp_path / "int8").classify(first[:9], second[:9])[0].label in ("no", "yes")
    with pytest.raises(InputError, match="model: .*pair.* separately"):
        export.run(Export(model=run.result.model_directory, out=tmp_path / "onnx"))
    with pytest.raises(InputError, match="compares pairs"):
        run.predictor.classify(first)
    again = replace(run.settings, model=run.result.model_directory, out=tmp_path / "next", epochs=0.1, baselines=False)
    assert checkpoint.load(run_task(again).model_directory).model.config.pooler_act == "pair"


@pytest.mark.slow
def test_the_baseline_is_the_model_before_the_first_step(run, rows, finetuned):
    """So a run that keeps it has the same score, and its result is marked as frozen."""
    frozen = finetuned(
        Classify, model=run.settings.model, train=rows[:120], test=rows[120:], window=16, learning_rate=0.0,
        baselines=True, linear_start=True,
    )  # fmt: skip
    name = "frozen vector pairs + logistic regression"
    assert frozen.result.frozen and frozen.result.mean == frozen.result.baselines[name]
    assert frozen.result.baselines == run.result.baselines
    assert [row["step"] for row in frozen.metrics] == [0]  # nothing was trained
    first = next(row for row in run.metrics if row["split"] == "heldout")
    assert first["step"] == 0 and first["accuracy"] == frozen.metadata["result"]["scores"]["dev"][0]


@pytest.mark.slow
def test_pairs_that_training_only_harms_keep_the_frozen_encoder(run, rows, finetuned):
    harmed = finetuned(
        Classify, model=run.settings.model, train=rows[:120], test=rows[120:], window=16, learning_rate=0.5,
        baselines=True, linear_start=True,
    )  # fmt: skip
    dev = [row["accuracy"] for row in harmed.metrics if row["split"] == "heldout"]
    assert dev[-1] < dev[0] and harmed.result.frozen and harmed.metadata["figures"]["dev"]["best_step"] == 0
    assert harmed.result.mean == harmed.result.baselines["frozen vector pairs + logistic regression"]
    assert "(frozen, with a linear head)" in harmed.result.verdict
    before, after = (
        checkpoint.load(path).model.encoder.state_dict() for path in (run.settings.model, harmed.result.model_directory)
    )
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def features_of(settings_class, **options):
    settings = settings_class(out="run", epochs=1.0, **options)
    build = Classification if settings_class is Classify else Regression
    return build.build(settings, checkpoint.load(settings.model), read_tables(settings)).pair_features


def test_auto_encodes_separately_what_a_checkpoint_for_vectors_can_compare(start, checkpoint_of, rows, monkeypatch):
    options = {"model": start, "train": rows}
    assert features_of(Classify, **options) == features_of(Regress, **options, label_column="score") == "pair"
    assert features_of(Classify, **options, pooling="mean") is features_of(Classify, **options, pooling="cls") is None
    other = checkpoint_of(num_hidden_layers=1)
    assert features_of(Classify, model=other, train=rows) is None
    assert features_of(Classify, model=other, train=rows, pooling="pair") == "pair"
    single = [{"text": row["text"], "label": row["label"]} for row in rows]
    assert features_of(Classify, model=start, train=single) is None
    with pytest.raises(InputError, match=r"pooling \(pair\) .*--pair-column"):
        features_of(Classify, model=start, train=single, pooling="pair")
    monkeypatch.setattr(text_task, "MAX_SEPARATE", 10)
    assert features_of(Classify, **options) is None


@pytest.mark.slow
def test_pairs_read_as_one_text_have_the_separate_baseline(start, rows, finetuned, monkeypatch):
    monkeypatch.setattr(text_task, "MAX_PAIRS", 60)
    run = finetuned(
        Classify, model=start, train=rows[:120], test=rows[120:], pooling="mean", epochs=0.1, baselines=True
    )
    assert "frozen vector pairs + logistic regression" in run.result.baselines
    encoder = run.result.directory / ("encoder" if run.result.delivered else "model")
    assert checkpoint.load(encoder).model.config.pooler_act == "unit"


def test_numbers_of_pairs_are_learned_and_kept_in_their_unit(start, rows, finetuned):
    options = {"train": [{**row, "score": row["score"] + 40} for row in rows], "label_column": "score"}
    run = finetuned(Regress, model=start, **options, epochs=4.0)
    first, second = texts_of(rows)
    numbers = run.predictor.regress(first, second)
    assert abs(numbers.mean() - np.mean([row["score"] + 40 for row in rows])) < 0.5 and run.result.mean > 0.5


@pytest.mark.slow
def test_windows_resume_bit_for_bit(start, rows, tmp_path):
    settings = Classify(
        model=start, train=rows[:120], test=rows[120:], out=tmp_path / "whole", epochs=2.0, batch_tokens=256,
        checkpoint_every=2, baselines=False, linear_start=False, window=16,
    )  # fmt: skip
    run_task(settings)

    def stop(row):
        if row.get("step") == 5:
            raise KeyboardInterrupt

    broken = replace(settings, out=tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        run_task(broken, callbacks=[stop])
    run_task(replace(broken, resume=True))
    whole, again = (checkpoint.load(path).model.state_dict() for path in (settings.out, broken.out))
    assert all(torch.equal(value, again[name]) for name, value in whole.items())
    assert json.loads((broken.out / "bothways.json").read_text())["result"]["n"] == 1
