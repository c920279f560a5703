"""Fine-tuning a model that finds answers, on generated passages: the question names an animal, the answer is the word
after it."""

import csv
import json
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.evaluation import evaluate
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Evaluate
from bothways.tasks import losses
from bothways.tasks.answer.files import read_splits
from bothways.tasks.answer.training import Answering
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.plan import make_plan
from tests.training.finetuning.gallery import squad
from tests.training.finetuning.gallery import write_json as write

pytestmark = pytest.mark.slow


@pytest.fixture
def run(gallery):
    return gallery.answer


@pytest.fixture
def settings(gallery):
    return gallery.settings("answer")


@pytest.fixture
def result(run):
    return run.result


def test_a_test_set_is_measured_with_the_threshold_of_the_weights_that_are_kept(settings, tmp_path, monkeypatch):
    """Where dev is taken from train, too; of a threshold that changes with each measurement."""
    changed = replace(
        settings,
        train=write(tmp_path / "train.json", squad(0, 60, impossible=0.4)),
        dev=None,
        epochs=2.0,
        test=write(tmp_path / "test.json", squad(2, 20, impossible=0.4)),
        out=tmp_path / "run",
        evaluations_per_epoch=2.0,
    )
    result = run_task(changed)
    metadata = json.loads((result.model_directory / "bothways.json").read_text())
    figures = json.loads((result.directory / "bothways.json").read_text())["figures"]
    assert figures["test"]["no_answer_threshold"] == figures["dev"]["no_answer_threshold"]
    assert figures["dev"]["no_answer_threshold"] == metadata["no_answer_threshold"]
    assert [*figures] == ["dev", "test"]
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(changed.test,), dtype="float32"))
    assert scores["f1"] == pytest.approx(100 * result.mean)
    with (result.directory / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 20 and [*rows[0]] == ["file", "row", "id", "text", "gold", "predicted"]
    assert {type(json.loads(row["gold"])) for row in rows} == {list} and {row["gold"] == "[]" for row in rows} == {
        True,
        False,
    }


def test_an_answer_without_any_token_is_an_error_or_left_out_with_a_message(settings, tmp_path):
    content = squad(0, 30)
    paragraph = content["data"][0]["paragraphs"][3]
    paragraph["context"] += " \u200b"
    paragraph["qas"][0]["answers"] = [{"text": "\u200b", "answer_start": len(paragraph["context"]) - 1}]
    changed = replace(settings, train=write(tmp_path / "train.json", content), epochs=0.1, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"train\.json"):
        run_task(changed)
    report = make_plan(replace(changed, on_error="skip")).task.report
    assert report.num_rows("train") == 29
    assert ", longest " in report.describe() and "left out: 1 answers" in report.describe()
    content["data"][0]["paragraphs"] = [paragraph]
    none_left = replace(changed, dev=write(tmp_path / "dev.json", content), on_error="skip", out=tmp_path / "other")
    with pytest.raises(InputError, match=r"dev\.json.* dev "):
        run_task(none_left)


def test_a_question_in_two_files_is_refused(settings, tmp_path):
    model = run_task(replace(settings, epochs=0.1, out=tmp_path / "run")).model_directory
    copy = tmp_path / "copy.json"
    copy.write_bytes(settings.test.read_bytes())
    with pytest.raises(InputError, match="'q2-0' .* two .*files"):
        evaluate.run(Evaluate(model=model, file=(settings.test, copy)))


def test_answers_are_learned(result):
    assert (result.task, result.metric, result.split) == ("answer", "f1", "test")
    assert result.mean > 0.9 and result.failed == 0


def test_the_page_shows_the_answers_that_are_wrong(result, settings):
    task = Answering.build(settings, checkpoint.load(settings.model))
    model = bothways.load(result.model_directory, dtype="float32")
    (mistakes,) = task.report.sections(task.scoring.predictions("test", task.scoring.outputs(model.module, "test")))
    questions = task.questions["test"]
    answers = model.answer([one.question for one in questions], [one.context for one in questions])
    wrong = [
        (one.question, one.context) for one, (best, *_) in zip(questions, answers, strict=True)
        if best.text not in [text for text, _ in one.answers]
    ]  # fmt: skip
    assert mistakes.num_examined == 51 and [(case.question, case.passage) for case in mistakes.cases] == wrong


def test_the_model_points_at_a_slice_of_the_passage(result):
    passage = "on a b the CAT  ran and b the"
    predictions = bothways.load(result.model_directory, dtype="float32").answer("the cat", passage)[0]
    assert predictions.text == "ran" == passage[predictions.start : predictions.end]


def test_a_model_that_always_had_an_answer_gives_one(result):
    assert "no_answer_threshold" not in json.loads((result.model_directory / "bothways.json").read_text())
    assert bothways.load(result.model_directory, dtype="float32").answer("the dog", "the and b")[0].text


def test_no_answer_is_learned_and_its_threshold_tuned_on_dev(settings, tmp_path):
    for name, seed, number in (("train", 3, 400), ("dev", 4, 60), ("test", 5, 60)):
        write(tmp_path / f"{name}.json", squad(seed, number, impossible=0.4))
    files = {name: tmp_path / f"{name}.json" for name in ("train", "dev", "test")}
    result = run_task(replace(settings, **files, epochs=5.0, out=tmp_path / "run"))
    assert result.mean > 0.85
    metadata = json.loads((result.model_directory / "bothways.json").read_text())
    figures = json.loads((result.directory / "bothways.json").read_text())["figures"]
    assert metadata["no_answer_threshold"] == figures["dev"]["no_answer_threshold"]
    assert figures["test"]["baseline"] == pytest.approx(0.4, abs=0.2)
    model = bothways.load(result.model_directory, dtype="float32")
    paragraphs = json.loads(files["test"].read_text())["data"][0]["paragraphs"]
    questions = [paragraph["qas"][0] for paragraph in paragraphs]
    contexts = [paragraph["context"] for paragraph in paragraphs]
    answers = [best for best, *_ in model.answer([question["question"] for question in questions], contexts)]
    expected = [question["answers"][0]["text"] if question["answers"] else "" for question in questions]
    is_right = [answer.text == text for answer, text in zip(answers, expected, strict=True)]
    assert sum(is_right) / 60 == pytest.approx(figures["test"]["exact_match"])
    for absent in (True, False):  # both kinds are mostly right
        rows = [right for right, text in zip(is_right, expected, strict=True) if (text == "") is absent]
        assert sum(rows) > 0.8 * len(rows)
    nothing = next(answer for answer in answers if not answer.text)
    assert (nothing.start, nothing.end) == (0, 0)


def test_the_first_message_counts_questions_without_an_answer(settings, tmp_path):
    content = squad(3, 50, impossible=0.4)
    absent = sum(paragraph["qas"][0]["is_impossible"] for paragraph in content["data"][0]["paragraphs"])
    train = write(tmp_path / "train.json", content)
    described = make_plan(replace(settings, train=train, test=None)).task.report.describe()
    assert re.search(rf"\b{absent} .*without an answer", described)


def test_a_family_without_such_a_head_is_refused_by_name(make_model, tokenizer, settings, tmp_path):
    model = make_model("bert", direction="forward")
    checkpoint.save(Checkpoint(model, tokenizer, model_type="bothways-oneway"), tmp_path / "model")
    with pytest.raises(InputError, match="bothways-oneway.*albert, bert, big_bird, "):
        run_task(replace(settings, model=tmp_path / "model", out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", ["longformer", "big_bird"])
def test_a_question_that_sees_far_has_its_answers_learned(family, make_model, tokenizer, settings, tmp_path):
    changes = {"num_hidden_layers": 2, "max_position_embeddings": 128}
    model = make_model(family, {"masked_words": 0}, **changes)
    checkpoint.save(Checkpoint(model, tokenizer, model_type=family), tmp_path / "start")
    result = run_task(replace(settings, model=tmp_path / "start", out=tmp_path / "run", epochs=4.0))
    assert result.mean > 0.9


def test_a_long_passage_is_read_in_windows_and_those_without_the_answer_point_at_cls(settings, tmp_path):
    file = write(tmp_path / "long.json", squad(6, 12, length=300))
    changed = replace(settings, train=file, dev=None, test=None, window=90, overlap=20)
    task = Answering.build(replace(changed, dev=file, test=file), checkpoint.load(changed.model))
    windows, rows = task.windows["train"], iter(task.data["train"].rows)
    for parts, question in zip(windows, task.questions["train"], strict=True):
        own = [next(rows) for _ in parts]
        assert len(parts) > 3 and any(row != (0, 0) for row in own) and (0, 0) in own
        for window, (first, last) in zip(parts, own, strict=True):
            if first:
                assert window.tokens[first : last + 1] == [question.answers[0][0]]


def test_the_loss_is_that_of_transformers(make_model, settings, global_seed):
    task = Answering.build(settings, checkpoint.load(settings.model))
    batch = task.data["dev"].batch([3, 1, 8])
    scores_T2 = torch.randn(batch.num_tokens, 2)
    total, number = losses.span_loss(scores_T2, batch.labels, batch.lengths.tolist())
    expected = 0.0
    for scores_S2, (first, last) in zip(scores_T2.split(batch.lengths.tolist()), batch.labels.tolist(), strict=True):
        log_S2 = scores_S2.log_softmax(0)
        expected -= float(log_S2[first, 0] + log_S2[last, 1]) / 2
    assert float(total) == pytest.approx(expected, rel=1e-5) and number == 3


def test_an_answer_that_is_not_at_its_offset_is_named_or_left_out_with_a_message(settings, tmp_path):
    wrong = squad(7, 30)
    wrong["data"][0]["paragraphs"][4]["qas"][0]["answers"][0]["answer_start"] += 1
    file = write(tmp_path / "wrong.json", wrong)
    with pytest.raises(InputError, match=r"wrong.json.*q7-4"):
        run_task(replace(settings, train=file, out=tmp_path / "run"))
    report = make_plan(replace(settings, train=file, on_error="skip")).task.report
    assert report.num_rows("train") == 29 and "left out: 1 " in report.describe()


def test_one_file_is_divided_by_passages(settings):
    splits = read_splits(replace(settings, dev=None, test=None), Counter())
    contexts = {split: {one.context for one in questions} for split, questions in splits.items()}
    assert sum(map(len, splits.values())) == 400
    assert not contexts["train"] & contexts["dev"] and not contexts["train"] & contexts["test"]


def test_transformers_loads_the_model(result):
    transformers.logging.disable_progress_bar()
    _, report = transformers.BertForQuestionAnswering.from_pretrained(result.model_directory, output_loading_info=True)
    assert not any(report.values())
