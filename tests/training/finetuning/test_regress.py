"""Text regression on synthetic tables."""

from dataclasses import replace

import numpy as np
import pytest
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.settings import Regress
from bothways.tasks.regress.training import Regression
from bothways.text.data.split_tables import read_tables
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.plan import make_plan
from tests.training.finetuning.gallery import number_rows as rows_of


@pytest.fixture
def run(gallery):
    return gallery.regress


@pytest.fixture
def settings(gallery):
    return gallery.settings("regress")


@pytest.fixture
def result(run):
    return run.result


def test_numbers_are_learned_and_reported_as_a_correlation(run):
    result = run.result
    assert (result.task, result.metric, result.split) == ("regress", "spearman", "test")
    assert result.mean > 0.9 and result.failed == 0


def test_the_first_message_has_the_range_of_the_numbers(settings):
    assert "numbers from 7000 to 8500, median" in make_plan(settings).task.report.describe()


def test_the_table_of_predictions_has_the_gold_and_predicted_number_of_each_text(run):
    rows = run.predictions
    assert [(row["text"], float(row["gold"])) for row in rows] == [
        (row["text"], row["score"]) for row in rows_of(2, 50)
    ]
    predicted = run.predictor.regress([row["text"] for row in rows])
    assert [float(row["predicted"]) for row in rows] == pytest.approx(predicted.tolist(), rel=1e-3)
    assert [*rows[0]] == ["file", "row", "line", "text", "gold", "predicted"]


def test_the_model_gives_numbers_in_the_unit_of_the_table(run):
    rows = rows_of(5, 30)
    scores = run.predictor.regress([row["text"] for row in rows])
    errors = scores - np.array([row["score"] for row in rows])
    assert np.sqrt((errors**2).mean()) < 200  # of a deviation of 560
    with pytest.raises(InputError, match="regress"):
        run.predictor.classify(["the cat"])


def test_the_metrics_of_the_run_are_those_of_the_saved_model(run):
    rows = rows_of(2, 50)
    errors = run.predictor.regress([row["text"] for row in rows]) - np.array([row["score"] for row in rows])
    saved = run.metadata["figures"]["test"]["mean_squared_error"]
    assert saved == pytest.approx((errors**2).mean(), rel=1e-3)


def test_the_page_shows_the_table_s_own_numbers(settings, result, table):
    rows = [{**row, "score": row["score"] * 1000 + 1.25} for row in rows_of(1, 40)]
    settings = replace(settings, dev=table(rows))
    task = Regression.build(settings, checkpoint.load(settings.model), read_tables(settings))
    outputs = task.scoring.outputs(checkpoint.load(result.model_directory).model, "dev")
    _, mistakes = task.report.sections(task.scoring.predictions("dev", outputs))
    assert [mistake.gold for mistake in mistakes.cases] == [row["score"] for row in rows]


def test_transformers_loads_the_model_and_gives_the_same_numbers(result):
    transformers.logging.disable_progress_bar()
    peer = transformers.BertForSequenceClassification.from_pretrained(result.model_directory).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(result.model_directory)
    texts = [row["text"] for row in rows_of(5, 9)]
    logits = peer(**theirs(texts, padding=True, return_tensors="pt")).logits[:, 0].detach()
    assert bothways.load(result.model_directory, dtype="float32").regress(texts) == pytest.approx(
        logits.numpy(), rel=1e-5
    )
    assert (peer.config.problem_type, peer.config.id2label) == ("regression", {0: "LABEL_0"})
    pipeline = transformers.pipeline("text-classification", model=peer, tokenizer=theirs)
    (answer,) = pipeline(texts[0])
    assert answer == {"label": "LABEL_0", "score": pytest.approx(float(logits[0]), rel=1e-5)}


def test_numbers_are_exact_to_the_unit_in_bf16_too(result, tmp_path):
    """Of 7,000 bf16 has every 32nd: what maps to the number itself stays as it is."""
    texts = [row["text"] for row in rows_of(3, 40)]
    exact = bothways.load(result.model_directory, dtype="float32").regress(texts)
    for model in (
        bothways.load(result.model_directory, dtype="bfloat16"),
        Predictor(checkpoint.load(result.model_directory), dtype="bfloat16", device="cpu"),
    ):
        differences = model.regress(texts) - exact
        assert model.dtype == "bfloat16" and abs(differences.mean()) < 4
        model.save(tmp_path / "again")
        again = bothways.load(tmp_path / "again", dtype="float32").regress(texts)
        np.testing.assert_array_equal(again, exact)


def test_numbers_that_never_change_are_refused(settings, table, tmp_path):
    same = table([{"text": f"a {number}", "score": 2} for number in range(30)], "same.jsonl")
    with pytest.raises(InputError, match=r"same\.jsonl: .* 2;"):
        run_task(replace(settings, train=same, dev=None, test=None, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def scaled_rows(seed, count, offset, scale):
    """The same rows with offset + scale * cats as numbers."""
    return [{**row, "score": offset + scale * (row["score"] - 7000) / 500} for row in rows_of(seed, count)]


@pytest.mark.slow
def test_a_large_offset_is_rounded_in_the_reported_metrics_too_with_a_warning(settings, table, finetuned):
    train, dev, test = (scaled_rows(seed, count, 1.7e9, 3000) for seed, count in ((0, 250), (1, 40), (2, 50)))
    shifted = finetuned(Regress, model=settings.model, train=table(train), dev=table(dev), test=table(test), epochs=4.0)
    scores = shifted.predictor.regress([row["text"] for row in test]).astype(float)
    assert len(np.unique(scores)) > 5 and not (scores % 128).any()  # float32 has no others there
    errors = scores - np.array([row["score"] for row in test])
    saved = shifted.metadata["figures"]["test"]["mean_squared_error"]
    assert saved == pytest.approx((errors**2).mean(), rel=1e-9)
    assert "128 apart" in shifted.messages[0] and "128 apart" in shifted.report


@pytest.mark.parametrize(("offset", "scale"), [(1.7e9, 10), (-3e38, 1e29), (0, 1e-45)])
def test_numbers_indistinguishable_in_float32_are_an_error(offset, scale, settings, table, tmp_path):
    with pytest.raises(InputError, match=r"train\.jsonl: float32 "):
        run_task(replace(settings, train=table(scaled_rows(0, 250, offset, scale)), out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("written", ["NaN", '"high"', "Infinity", "1e307", "-3.5e38"])
def test_an_invalid_number_is_refused_with_file_and_line(written, settings, tmp_path):
    (tmp_path / "t.jsonl").write_text(f'{{"text": "a", "score": 1}}\n{{"text": "b", "score": {written}}}\n')
    with pytest.raises(InputError, match=r"t.jsonl: row \d+ \(line 2\): "):
        run_task(replace(settings, train=tmp_path / "t.jsonl", out=tmp_path / "run"))
