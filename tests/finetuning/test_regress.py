"""Fine-tuning a model that gives numbers, on tables made here."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.split_tables import read_tables
from bothways.errors import InputError
from bothways.finetuning import regress
from bothways.inference.predictor import Predictor
from bothways.log import messages_to
from bothways.settings import Regress

FILLERS = "the and on a b mat ran".split()


def rows_of(seed, number):
    """Texts whose number is how many cats are in them, in an odd unit."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        cats = int(rng.integers(0, 4))
        words = [*rng.choice(FILLERS, 5).tolist(), *["cat"] * cats, *["dog"] * (3 - cats)]
        found.append({"text": " ".join(rng.permutation(words).tolist()), "score": 7000 + 500 * cats})
    return found


@pytest.fixture(scope="module")
def settings(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("regress")
    model = make_model("bert", {"masked_words": 0}, num_hidden_layers=1)
    checkpoint.save(Checkpoint(model, tokenizer), directory / "start")
    for name, rows in (("train", rows_of(0, 250)), ("dev", rows_of(1, 40)), ("test", rows_of(2, 50))):
        (directory / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return Regress(
        baselines=False,
        model=directory / "start",
        train=directory / "train.jsonl",
        dev=directory / "dev.jsonl",
        test=directory / "test.jsonl",
        out=directory / "run",
        epochs=12.0,
        batch_tokens=256,
        learning_rate=5e-3,
        dropout=0.0,
        dtype="float32",
        linear_start=False,
    )


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def result(settings, told):
    with messages_to(told.append):
        return regress.run(settings)


def test_numbers_are_learned_and_reported_as_a_correlation(result, told):
    assert (result.task, result.metric, result.split) == ("regress", "spearman", "test")
    assert result.mean > 0.9 and result.failed == 0
    assert "numbers from 7000 to 8500, median" in told[0]


def test_the_model_gives_numbers_in_the_unit_of_the_table(result):
    model = bothways.load(result.model, dtype="float32")
    rows = rows_of(5, 30)
    scores = model.regress([row["text"] for row in rows])
    errors = scores - np.array([row["score"] for row in rows])
    assert np.sqrt((errors**2).mean()) < 200  # of a deviation of 560
    with pytest.raises(InputError, match="one output, for regression; use score"):
        model.classify(["the cat"])


def test_the_figures_of_the_run_are_those_of_the_finished_model(result):
    made = json.loads((result.directory / "bothways.json").read_text(encoding="utf-8"))
    model = bothways.load(result.model, dtype="float32")
    rows = rows_of(2, 50)
    errors = model.regress([row["text"] for row in rows]) - np.array([row["score"] for row in rows])
    assert made["figures"]["test"]["mean_squared_error"] == pytest.approx((errors**2).mean(), rel=1e-3)


def test_the_page_shows_the_table_s_own_numbers(settings, result, tmp_path):
    rows = [{**row, "score": row["score"] * 1000 + 1.25} for row in rows_of(1, 40)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = replace(settings, dev=tmp_path / "dev.jsonl")
    task = regress.Regression.of(given, checkpoint.load(settings.model), read_tables(given))
    _, misses = task.parts(task.predictions("dev", task.outputs(checkpoint.load(result.model).model, "dev")))
    assert [miss.gold for miss in misses.cases] == [row["score"] for row in rows]


def test_transformers_loads_the_model_and_gives_the_same_numbers(result):
    transformers.logging.disable_progress_bar()
    peer = transformers.BertForSequenceClassification.from_pretrained(result.model).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(result.model)
    texts = [row["text"] for row in rows_of(5, 9)]
    logits = peer(**theirs(texts, padding=True, return_tensors="pt")).logits[:, 0].detach()
    assert bothways.load(result.model, dtype="float32").regress(texts) == pytest.approx(logits.numpy(), rel=1e-5)


def test_numbers_are_exact_to_the_unit_in_bf16_too(result):
    """Of 7,000 bf16 has every 32nd: what maps to the number itself stays as it is."""
    texts = [row["text"] for row in rows_of(3, 40)]
    exact = bothways.load(result.model, dtype="float32").regress(texts)
    for model in (
        bothways.load(result.model, dtype="bfloat16"),
        Predictor(checkpoint.load(result.model), dtype="bfloat16", device="cpu"),
    ):
        differences = model.regress(texts) - exact
        assert model.dtype is torch.bfloat16 and abs(differences.mean()) < 4
        model.save(result.directory / "again")
        again = bothways.load(result.directory / "again", dtype="float32").regress(texts)
        np.testing.assert_array_equal(again, exact)


def test_numbers_that_never_change_are_refused(settings, tmp_path):
    (tmp_path / "same.jsonl").write_text(
        "\n".join(f'{{"text": "a {n}", "score": 2}}' for n in range(30)), encoding="utf-8"
    )
    with pytest.raises(InputError, match="same.jsonl: every number is 2; there is nothing to learn"):
        alone = replace(settings, train=tmp_path / "same.jsonl", dev=None, test=None)
        regress.run(replace(alone, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def shifted(settings, tmp_path, offset, scale):
    """The same tables with offset + scale * cats as numbers."""
    files = {name: tmp_path / f"{name}.jsonl" for name in ("train", "dev", "test")}
    for file, rows in zip(files.values(), (rows_of(0, 250), rows_of(1, 40), rows_of(2, 50)), strict=True):
        own = [{**row, "score": offset + scale * (row["score"] - 7000) / 500} for row in rows]
        file.write_text("\n".join(map(json.dumps, own)), encoding="utf-8")
    return replace(settings, **files, out=tmp_path / "run", epochs=4.0)


def test_what_is_reported_is_measured_on_what_is_saved_and_rounding_is_warned_of(settings, tmp_path):
    told = []
    given = shifted(settings, tmp_path, 1.7e9, 3000)
    with messages_to(told.append):
        result = regress.run(given)
    model = bothways.load(result.model, dtype="float32")
    rows = [json.loads(line) for line in given.test.read_text(encoding="utf-8").splitlines()]
    scores = model.regress([row["text"] for row in rows]).astype(float)
    assert len(np.unique(scores)) > 5 and not (scores % 128).any()  # float32 has no others there
    errors = scores - np.array([row["score"] for row in rows])
    figures = json.loads((result.directory / "bothways.json").read_text(encoding="utf-8"))["figures"]["test"]
    assert figures["mean_squared_error"] == pytest.approx((errors**2).mean(), rel=1e-9)
    assert any("128 apart" in line for line in told[0].splitlines())
    assert "128 apart" in (result.directory / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("offset", "scale"), [(1.7e9, 10), (-3e38, 1e29), (0, 1e-45)])
def test_numbers_that_float32_cannot_tell_apart_are_refused(offset, scale, settings, tmp_path):
    with pytest.raises(InputError, match=r"train.jsonl: float32 numbers near .* apart.*subtract a constant"):
        regress.run(shifted(settings, tmp_path, offset, scale))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("written", ["NaN", '"high"', "Infinity", "1e307", "-3.5e38"])
def test_what_is_no_number_is_refused_with_file_and_line(written, settings, tmp_path):
    (tmp_path / "t.jsonl").write_text(f'{{"text": "a", "score": 1}}\n{{"text": "b", "score": {written}}}\n')
    with pytest.raises(InputError, match=r"t.jsonl:2: "):
        regress.run(replace(settings, train=tmp_path / "t.jsonl", out=tmp_path / "run"))
