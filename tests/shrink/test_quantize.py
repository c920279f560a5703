"""quantize: what it writes works as before, what loses too much is not written, and each kind of model is measured by
its own figures."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.cli import main
from bothways.evaluation import evaluate
from bothways.evaluation.before_after import Drop, measure_drop, read_evaluation_rows
from bothways.model import int8_training as calibrate
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.card_file import CARD
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.weights import INT8_WEIGHTS
from bothways.settings import Classify, Evaluate, Pretrain, Quantize, TrainEmbed
from bothways.shrink import measuring, quantize
from bothways.shrink.measuring import Measured
from bothways.shrink.quantize import halves
from bothways.tasks.fill.scoring import MASK_EVERY, mask_words
from bothways.tasks.scores import Scores
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.pretraining import pretrain

WORDS = ["cat", "dog", "mat", "sat", "ran", "and", "on", "the", "a", "b"]
TEXTS = [" ".join(WORDS[(row * step + row) % 10] for step in range(1, 4 + row % 9)) for row in range(37)]
ANY = 100.0  # points that may be lost: small random models lose many


@pytest.fixture(scope="module")
def make(make_model, tokenizer, tmp_path_factory):
    def made(heads=None, **facts):
        directory = tmp_path_factory.mktemp("float") / "model"
        checkpoint.save(Checkpoint(make_model("bert", heads), tokenizer, **facts), directory)
        return directory

    return made


@pytest.fixture(scope="module")
def vectors(make):
    return make(pooling="mean")


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return tmp_path / "texts.txt"


def contents(directory):
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def rows(directory, content):
    (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return directory / "rows.jsonl"


def settings(model, texts, out, **options):
    return Quantize(**{"model": model, "texts": texts, "out": out, "max_drop": ANY, "dtype": "float32"} | options)


def test_the_command_prints_size_speed_and_accuracy_and_writes_a_model_that_loads(vectors, texts, tmp_path, capsys):
    main.main(["quantize", str(vectors), "--with", str(texts), "-o", str(tmp_path / "small"), "--max-drop", "50"])
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("float32", "int8", "MB", "texts/s", "mean cosine", str(tmp_path / "small")))
    first, second = (bothways.load(tmp_path / "small", dtype="float32").embed(TEXTS) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    exact = bothways.load(vectors, dtype="float32").embed(TEXTS)
    assert 0.98 < (first * exact).sum(1).mean() < 0.9999999
    alone = np.concatenate([bothways.load(tmp_path / "small", dtype="float32").embed([text]) for text in TEXTS[:3]])
    np.testing.assert_allclose(alone, first[:3], atol=1e-5)


def test_the_measured_model_is_the_written_one(vectors, texts, tmp_path):
    result = quantize.run(settings(vectors, texts, tmp_path / "small"))
    exact, small = (bothways.load(path, dtype="float32").embed(TEXTS[1::2]) for path in (vectors, tmp_path / "small"))
    cosines = 100 * (exact * small).sum(1)
    names = [one.name for one in result.measured]
    assert names == ["float32", "int8"] and result.rows == 18 and "no labels" in result.notes[0]
    assert result.measured[1].figures["mean cosine"] == pytest.approx(cosines.mean(), abs=1e-4)
    assert result.measured[1].figures["least cosine"] == pytest.approx(cosines.min(), abs=1e-4)
    assert result.measured[0].figures["mean cosine"] == pytest.approx(100, abs=1e-4)
    file = tmp_path / "small" / INT8_WEIGHTS
    assert result.measured[1].size == pytest.approx(file.stat().st_size, rel=0.25)  # names take much of so small a file
    assert result.measured[1].size < 0.6 * result.measured[0].size


def test_saved_again_it_is_the_same_file(vectors, texts, tmp_path):
    quantize.run(settings(vectors, texts, tmp_path / "small"))
    bothways.load(tmp_path / "small").save(tmp_path / "again")
    first, second = ((tmp_path / name / INT8_WEIGHTS).read_bytes() for name in ("small", "again"))
    assert first == second


def test_other_libraries_refuse_the_directory_by_name(vectors, texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    quantize.run(settings(vectors, texts, tmp_path / "small"))
    with pytest.raises(ValueError, match="bothways-int8"):
        transformers.AutoModel.from_pretrained(tmp_path / "small")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.BertModel.from_pretrained(tmp_path / "small")


@pytest.mark.slow
@pytest.mark.parametrize("broken", [1000.0, float("nan")])
def test_a_model_that_loses_too_much_is_refused_and_nothing_is_written(vectors, texts, tmp_path, monkeypatch, broken):
    whole = calibrate.int8_linear

    def spoilt(*arguments):
        made = whole(*arguments)
        made.weight_scale.mul_(broken)
        return made

    with pytest.raises(InputError, match=r"0\.\d+ points of mean cosine \(95 % .*\), measured on 18 texts.*--max-drop"):
        quantize.run(settings(vectors, texts, tmp_path / "small", max_drop=0.0))
    monkeypatch.setattr(calibrate, "int8_linear", spoilt)
    with pytest.raises(InputError, match="nothing was written"):
        quantize.run(settings(vectors, texts, tmp_path / "small", max_drop=20.0))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["texts.txt"]


def test_the_most_sensitive_layers_stay_as_they_are(vectors, texts, tmp_path, monkeypatch):
    whole, spoilt = calibrate.candidate, "encoder.layers.1.feed_forward.output"
    names = {id(part): name for name, part in ()}

    def with_spoilt_layer(linear, seen, strength):
        form = whole(linear, seen, strength)
        if linear.weight.shape == (24, 40) and (len(names) < 1 or id(linear) in names):
            names[id(linear)] = spoilt
            form.linear.weight_scale.fill_(0.5)
            return form._replace(error=9.0)
        return form

    monkeypatch.setattr(calibrate, "candidate", with_spoilt_layer)
    result = quantize.run(settings(vectors, texts, tmp_path / "small", max_drop=5.0))
    assert result.best.unchanged == ("encoder.layers.0.feed_forward.output",)
    assert "11 of 12 layers are int8" in result.notes[1]
    record = checkpoint.load(tmp_path / "small").metadata["quantize"]
    assert record["measured"][record["kept"]]["unchanged"] == [*result.best.unchanged]
    assert any("feed_forward.output" in line for line in result.lines())


# --- each kind of model -----------------------------------------------------------------------------------------------


def labelled(text):
    return {"text": text, "label": "pos" if "cat" in text else "neg"}


def test_rows_that_the_model_was_trained_on_are_named_in_a_message(make, tmp_path):
    file = rows(tmp_path, map(labelled, TEXTS))
    for split, use in (("train", "trained on"), ("dev", "selected on")):
        model = make({"classes": 2}, labels=("neg", "pos"), metadata={"settings": {split: str(file)}})
        messages = []
        with messages_to(messages.append):
            quantize.run(settings(model, file, tmp_path / f"small {split}"))
        assert any(f"{file}: the model was {use} this file" in line for line in messages)
        record = json.loads((tmp_path / f"small {split}" / "bothways.json").read_text(encoding="utf-8"))
        assert record["quantize"]["selected_on"] == split
        assert "both scores are too high" in (tmp_path / f"small {split}" / CARD).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_classifier_is_measured_by_its_labels_as_evaluate_measures(make, tmp_path):
    model = make({"classes": 2}, labels=("neg", "pos"))
    file = rows(tmp_path, map(labelled, TEXTS))
    result = quantize.run(settings(model, file, tmp_path / "small"))
    assert "by their labels" in result.notes[0]
    half = rows(tmp_path, map(labelled, TEXTS[1::2]))
    for form, path in zip(result.measured, (model, tmp_path / "small"), strict=True):
        expected = evaluate.run(Evaluate(model=path, file=(half,), dtype="float32"))
        assert form.figures["accuracy"] == pytest.approx(100 * expected["accuracy"])
        assert form.figures["f1_macro"] == pytest.approx(100 * expected["f1_macro"])
    assert bothways.load(tmp_path / "small").classify(TEXTS[:2])[0].label in ("neg", "pos")
    card = (tmp_path / "small" / CARD).read_text(encoding="utf-8")
    assert f"| float32 | {result.measured[0].size / 1e6:.1f} | {result.measured[0].score:.2f} | |" in card
    assert f"Measured on {result.rows} rows, others than" in card and "Only Bothways reads" in card
    assert "too high" not in card


def test_without_labels_the_share_of_texts_that_keep_theirs_counts(make, texts, tmp_path):
    model = make({"classes": 2}, labels=("neg", "pos"))
    result = quantize.run(settings(model, texts, tmp_path / "small"))
    before, after = (
        [one.label for one in bothways.load(path, dtype="float32").classify(TEXTS[1::2])]
        for path in (model, tmp_path / "small")
    )
    same = sum(map(str.__eq__, before, after)) / len(before)
    assert "no labels" in result.notes[0] and result.measured[1].figures == {"same label": pytest.approx(100 * same)}


@pytest.mark.slow
def test_several_labels_numbers_tags_and_answers_have_their_own_figures(make, texts, tmp_path):
    def measured(model, file, name):
        result = quantize.run(settings(model, file, tmp_path / name))
        again = json.loads(json.dumps(result.to_json()))
        assert again["measured"][1]["name"] == "int8" and bothways.load(tmp_path / name).module
        return "by their labels" in result.notes[0], next(iter(result.measured[0].figures))

    several = rows(tmp_path, ({"text": text, "label": "x|y" if "cat" in text else "z"} for text in TEXTS))
    model = make({"classes": 3}, labels=("x", "y", "z"), multi_label=True)
    assert measured(model, several, "several") == (True, "f1_micro")
    numbers = rows(tmp_path, ({"text": text, "pair": "a cat", "label": len(text)} for text in TEXTS))
    assert measured(make({"classes": 1}), numbers, "numbers") == (True, "spearman")
    tagger = make({"tokens": 3}, labels=("O", "B-X", "I-X"), metadata={"scheme": "iob2"})
    (tmp_path / "gold.txt").write_text("".join(f"{word} B-X\non O\n\n" for word in WORDS * 4), encoding="utf-8")
    assert measured(tagger, tmp_path / "gold.txt", "tags") == (True, "f1")
    assert measured(tagger, texts, "untagged") == (False, "same entities")
    columns = rows(tmp_path, ({"tokens": text.split(), "tags": ["O"] * len(text.split())} for text in TEXTS))
    assert measured(tagger, columns, "columns") == (True, "f1")
    reader = make({"spans": 2})
    questions = [{"id": str(row), "question": "who", "context": text} for row, text in enumerate(TEXTS)]
    assert measured(reader, rows(tmp_path, questions), "unanswered") == (False, "same answer")
    for row in questions:
        row["answers"] = {"text": [row["context"][:3]], "answer_start": [0]}
    assert measured(reader, rows(tmp_path, questions), "answers") == (True, "f1")


def test_a_tagger_that_learned_from_neighbours_is_measured_with_them(make, tmp_path):
    """As `evaluate` measures it; and one whose sentences were read alone, alone."""
    lines = [f"{word} B-X\n{other} O\n" for word in WORDS for other in WORDS] * 3
    (tmp_path / "gold.txt").write_text("\n".join(lines), encoding="utf-8")
    facts = {"labels": ("O", "B-X", "I-X")}
    for context in (True, False):
        model = make({"tokens": 3}, **facts, metadata={"scheme": "iob2", "settings": {"context": context, "window": 8}})
        predictor = bothways.load(model, dtype="float32")
        data = read_evaluation_rows(
            predictor, tmp_path / "gold.txt", settings(model, tmp_path / "gold.txt", tmp_path / "out")
        )
        tags = data.evaluator.predict(predictor, data.rows)
        scores = evaluate.run(Evaluate(model=model, file=(tmp_path / "gold.txt",), dtype="float32"))
        assert data.evaluator.score(data.rows, tags).percentages["f1"] == pytest.approx(100 * scores["f1"])
        assert sum(map(len, tags)) == 300 and (len(data) < 300) == context


def test_entities_are_the_same_if_only_their_scores_change_with_the_number_format(make, texts):
    model = make({"tokens": 3}, labels=("O", "B-X", "I-X"), metadata={"scheme": "iob2"})
    exact, rounded = (bothways.load(model, dtype=dtype) for dtype in ("float32", "bf16"))
    data = read_evaluation_rows(exact, texts, settings(model, texts, texts.parent / "out"))
    first, second = (one.tag(TEXTS) for one in (exact, rounded))
    places = [[[(one.label, one.start, one.end) for one in entities] for entities in each] for each in (first, second)]
    same = sum(map(list.__eq__, *places)) / len(TEXTS)
    assert any(first) and sum(map(list.__eq__, first, second)) < same * len(TEXTS)  # scores differ
    before, after = (data.evaluator.predict(model, data.rows) for model in (exact, rounded))
    assert data.evaluator.score(data.rows, after, before).percentages == {"same entities": pytest.approx(100 * same)}


def test_tokens_are_masked_in_texts_without_spaces(tokenizer):
    assert mask_words("the cat sat on the mat, and ran", tokenizer) == "[MASK] cat sat on the mat, [MASK] ran"
    assert mask_words("日本語の文字列です", tokenizer).count("[MASK]") >= 2
    assert mask_words("   ", tokenizer) == "[MASK]"
    text = "thecatsatonthematandranonthemat" * 3
    pieces = Tokenizer(
        {token: row for row, token in enumerate([*SPECIAL_TOKENS, *"theca", *map("##{}".format, "thecasonmdr")])}
    )
    assert mask_words(text, pieces).count("[MASK]") == -(-len(text) // MASK_EVERY)  # one word, in pieces


def test_a_table_is_read_with_the_columns_of_fine_tuning(make, tmp_path):
    """The columns it was fine-tuned on, second texts left out, single texts for a model of pairs refused."""
    table = rows(tmp_path, ({"premise": text, "hypothesis": "a cat", "far": len(text)} for text in TEXTS))
    columns = {"text_column": "premise", "label_column": "far"}
    model = make({"classes": 1}, metadata={"settings": columns, "reads_pairs": False})
    predictor = bothways.load(model, dtype="float32")
    data = read_evaluation_rows(predictor, table, settings(model, table, tmp_path / "out"))
    predictions = data.evaluator.predict(predictor, data.rows)
    assert data.labelled and predictions == predictor.regress(TEXTS).tolist()
    assert predictions != predictor.regress(TEXTS, ["a cat"] * len(TEXTS)).tolist()
    of_pairs = make({"classes": 2}, labels=("neg", "pos"), metadata={"reads_pairs": True})
    single = tmp_path / "single.txt"
    single.write_text("\n".join(TEXTS), encoding="utf-8")
    with pytest.raises(InputError, match=r"single\.txt: has single texts"):
        read_evaluation_rows(bothways.load(of_pairs), single, settings(of_pairs, single, tmp_path / "out"))


def test_questions_that_cannot_be_read_are_skipped_with_a_warning(make, tmp_path, caplog):
    model = make({"spans": 2})
    questions = [{"id": str(row), "question": "who", "context": text} for row, text in enumerate(TEXTS)]
    del questions[5]["context"]
    broken = rows(tmp_path, questions)
    with pytest.raises(InputError, match=r"rows\.jsonl: row 5 \(line 6\), id 5: no 'context'"):
        read_evaluation_rows(bothways.load(model), broken, settings(model, broken, tmp_path / "out"))
    questions[5]["context"] = "a cat"
    for row in questions:
        row["answers"] = {"text": [row["context"][:3]], "answer_start": [0 if row["id"] != "7" else 2]}
    answered = rows(tmp_path, questions)
    data = read_evaluation_rows(bothways.load(model), answered, settings(model, answered, tmp_path / "out"))
    assert len(data) == len(TEXTS) - 1
    assert "skipped 1 question " in caplog.text


# --- what cannot be used ----------------------------------------------------------------------------------------------


def test_half_of_a_file_calibrates_and_the_other_half_measures(tmp_path):
    calibrating, measuring = halves(37, tmp_path)
    assert sorted([*calibrating, *measuring]) == [*range(37)]
    calibrating, measuring = halves(9001, tmp_path)
    assert (len(calibrating), len(measuring)) == (256, 2000) and not {*calibrating} & {*measuring}
    assert calibrating[0] < 40 and calibrating[-1] > 8900 and measuring[-1] > 8900
    with pytest.raises(InputError, match=r"31 texts.*\b16\b"):
        halves(31, tmp_path)


def test_files_that_cannot_be_used_are_named(vectors, make, texts, tmp_path):
    model, out = make({"classes": 2}, labels=("neg", "pos")), tmp_path / "small"
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"empty\.txt: empty"):
        quantize.run(settings(vectors, tmp_path / "empty.txt", out))
    with pytest.raises(InputError, match=r"no\.txt"):
        quantize.run(settings(vectors, tmp_path / "no.txt", out))
    strange = rows(tmp_path, [*map(labelled, TEXTS), {"text": "a", "label": "neutral"}])
    with pytest.raises(InputError, match=r"rows\.jsonl: row \d+ \(line 38\): label 'neutral'.* neg, pos"):
        quantize.run(settings(model, strange, out))
    tagger = make({"tokens": 2}, labels=("O", "B-X"))
    (tmp_path / "gold.txt").write_text("a O\n\n" * 40 + "cat B-Y\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"gold\.txt: row \d+ \(line 81\): tag 'B-Y'.* O, B-X"):
        quantize.run(settings(tagger, tmp_path / "gold.txt", out))
    with pytest.raises(InputError, match="other files"):
        quantize.run(settings(vectors, texts, tmp_path))
    before = contents(vectors)
    with pytest.raises(InputError, match="model: already contains a model"):
        quantize.run(settings(vectors, texts, vectors))
    assert before == contents(vectors)
    assert not out.exists()


def test_an_int8_model_is_neither_quantized_again_nor_trained(vectors, texts, tmp_path):
    small = tmp_path / "small"
    quantize.run(settings(vectors, texts, small))
    with pytest.raises(InputError, match="int8"):
        quantize.run(settings(small, texts, tmp_path / "smaller"))
    file = rows(tmp_path, map(labelled, TEXTS))
    with pytest.raises(InputError, match="int8"):
        run_task(Classify(model=small, train=file, out=tmp_path / "run"))
    pairs = rows(tmp_path, ({"text": text, "pair": text[::-1]} for text in TEXTS))
    with pytest.raises(InputError, match="int8"):
        run_task(TrainEmbed(model=small, train=pairs, out=tmp_path / "run"))
    with pytest.raises(InputError, match="int8"):
        pretrain.run(Pretrain(corpus=(texts,), documents="line", from_checkpoint=small, out=tmp_path / "run", steps=1))
    assert not (tmp_path / "run").exists()


def test_a_damaged_directory_is_named(vectors, texts, tmp_path):
    small = tmp_path / "small"
    quantize.run(settings(vectors, texts, small))
    config = json.loads((small / "config.json").read_text(encoding="utf-8"))
    (small / "config.json").write_text(json.dumps(config | {"hidden_size": 48}), encoding="utf-8")
    with pytest.raises(InputError, match=r"int8\.safetensors: .*config\.json"):
        checkpoint.load(small)
    (small / INT8_WEIGHTS).write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"int8\.safetensors: broken"):
        checkpoint.load(small)
    (small / INT8_WEIGHTS).unlink()
    with pytest.raises(InputError, match=r"int8\.safetensors: not found"):
        checkpoint.load(small)


def test_bf16_is_also_measured_if_it_is_the_default(vectors, texts, tmp_path):
    result = quantize.run(settings(vectors, texts, tmp_path / "small", dtype="bfloat16"))
    assert [one.name for one in result.measured] == ["float32", "bfloat16", "int8"]
    assert result.measured[1].size == result.measured[0].size / 2
    assert (
        bothways.load(tmp_path / "small", dtype="bfloat16").module.encoder.embeddings.words.weight.dtype
        is torch.bfloat16
    )


def drop_of_accuracy(after, before):
    """The drop from some correct predictions to others (True: correct)."""
    evaluator = SimpleNamespace(
        score=lambda rows, correct, reference: Scores("accuracy", {"accuracy": np.mean(correct)})
    )
    return measure_drop(evaluator, range(len(after)), after, before)


@pytest.mark.slow
def test_95_percent_intervals_contain_the_true_drop_in_95_percent_of_samples():
    rng = np.random.default_rng(0)
    within, errors = [], []
    for _ in range(400):
        before = rng.random(500) < 0.9
        after = np.where(rng.random(500) < 0.03, ~before, before)  # on all texts 0.03 * 0.8 = 2.4 points are lost
        drop = drop_of_accuracy(after.tolist(), before.tolist())
        low, high = drop.interval
        within.append(low <= 2.4 <= high)
        errors.append(drop.standard_error)
    assert 0.90 < np.mean(within) < 0.98
    # of paired differences: sqrt((0.03 - 0.024 ** 2) / 500)
    assert np.mean(errors) == pytest.approx(100 * np.sqrt((0.03 - 0.024**2) / 500), rel=0.05)


def test_without_a_changed_prediction_the_interval_is_that_of_one_change():
    assert drop_of_accuracy([True] * 40, [True] * 40).interval == pytest.approx((-4.9, 4.9))


def test_a_gain_reads_as_a_gain():
    drop, gain = Drop("accuracy", 0.67, 0.5), Drop("accuracy", -0.67, 0.5)
    assert str(drop) == "loses 0.67 points of accuracy (95 % interval -0.31 to 1.65)" and not drop.is_gain
    assert str(gain) == "gains 0.67 points of accuracy (95 % interval -0.31 to 1.65)" and gain.is_gain
    assert str(Drop("accuracy", -0.001, 0.0)).startswith("loses 0.00 points")


def test_the_upper_end_of_the_interval_must_be_within_the_drop_that_is_allowed():
    Drop("accuracy", 0.3, 0.1).check(0.5, 400, "int8", "give more")
    with pytest.raises(InputError, match=r"0\.30 points .* 0\.69\), .* 400 texts; .*about 1,537 texts .*allow 0\.7 "):
        Drop("accuracy", 0.3, 0.2).check(0.5, 400, "int8", "give more")
    with pytest.raises(InputError, match=r"about 614,656 texts .* would tell, and at most 2,000 are measured on;"):
        Drop("accuracy", 0.49, 0.2).check(0.5, 400, "int8", "give more")
    with pytest.raises(InputError) as raised:
        Drop("accuracy", 0.6, 0.01).check(0.5, 400, "int8", "give more")
    assert "may lose more" not in str(raised.value)


@pytest.mark.parametrize(("texts", "max_drop"), [(19, 0.5), (75, 0.5), (40, 1.0)])
def test_as_many_texts_as_the_message_names_would_tell(texts, max_drop):
    """Without a changed prediction the interval shrinks with the number of texts, not with its square root."""
    with pytest.raises(InputError) as raised:
        drop_of_accuracy([True] * texts, [True] * texts).check(max_drop, texts, "int8", "give more")
    needed = round(196 / max_drop)
    assert f"about {needed:,} texts to measure on would tell;" in str(raised.value)
    assert drop_of_accuracy([True] * needed, [True] * needed).is_within(max_drop)


def test_the_fastest_format_is_named_with_both_speeds_and_sizes():
    def note(bf16, int8):
        loss, rows = Drop("accuracy", 0.1, 0.1), [
            ("float32", 90_000_000, 100.0), ("bfloat16", 45_000_000, bf16),
            ("int8", 20_000_000, 900.0), ("int8 except 1 layer", 23_000_000, int8),
        ]  # fmt: skip
        return quantize.speed_note(
            [Measured(name, size, 1.0, speed / 100, speed, {}, (0, 0), loss, loss) for name, size, speed in rows]
        )

    assert note(301.0, 264.0) == (
        "bfloat16 is faster on this processor: 301 against 264 texts/s; int8 is smaller: 23.0 against 45.0 MB"
    )
    assert note(201.0, 264.0) == "int8 is the fastest format on this processor"


@pytest.mark.slow
def test_nothing_is_written_if_the_drop_may_be_larger_than_allowed(vectors, texts, tmp_path, monkeypatch):
    def result_of(points, error):
        with monkeypatch.context() as patch:
            drop = Drop("mean cosine", points, error)
            patch.setattr(measuring, "measure_drop", lambda *arguments: drop)
            return quantize.run(settings(vectors, texts, tmp_path / f"{points}", max_drop=0.5))

    sure = result_of(0.2, 0.1)
    assert any("0.20 points of mean cosine (95 % interval 0.00 to 0.40); 0.5 are" in line for line in sure.lines())
    assert sure.to_json()["measured"][-1]["drop"] == {"metric": "mean cosine", "points": 0.2, "standard_error": 0.1}
    assert sure.to_json()["fastest"] in ("float32", "bfloat16", "int8")
    with pytest.raises(InputError, match="may lose more.*nothing was written"):
        result_of(0.4, 0.1)
    assert not (tmp_path / "0.4").exists()
