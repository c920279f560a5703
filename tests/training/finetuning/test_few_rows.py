"""Few rows: linear models on the frozen encoder and TF-IDF, chosen and scored out-of-fold, fitted to all rows."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.new_head import with_head
from bothways.model.linear import linear_head, tfidf
from bothways.model.losses import classification_loss
from bothways.settings import Classify, Regress, TrainEmbed
from bothways.tasks.classify.scoring import ClassScoring
from bothways.tasks.texts import HeadInput
from bothways.training.finetuning import finetune, plan, scored_rows, trials
from bothways.training.finetuning import gain as gain_module
from bothways.training.finetuning.gain import LOSS, Gain, loss_gain
from bothways.training.finetuning.ground.budget import Budget
from bothways.training.finetuning.ground.linear_candidates import FewRows, LinearCandidate
from bothways.training.run import read_metrics
from tests.soaked import in_soak
from tests.training.finetuning.gallery import class_rows, number_rows, pair_rows

pytestmark = pytest.mark.slow

DEFAULTS = {"epochs": None, "learning_rate": None, "linear_start": True, "baselines": True}
CHOSEN = FewRows.chosen
LONG_AGO = 10_000  # seconds


@pytest.fixture(scope="module")
def start(checkpoint_of):
    """An encoder of vectors with four layers."""
    return checkpoint_of(num_hidden_layers=4, options={"pooling": "mean", "normalized": True})


@pytest.fixture(scope="module")
def first_is_chosen():
    """The encoder with TF-IDF, though words alone are clearly better on these rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FewRows, "chosen", property(lambda self: self.candidates[0]))
        yield


@pytest.fixture(scope="module")
def few(start, finetuned, first_is_chosen):
    """A finished run on 45 rows of three classes."""
    return finetuned(Classify, model=start, train=class_rows(0, 45), **DEFAULTS)


@pytest.fixture(scope="module")
def tested(start, finetuned, first_is_chosen):
    """The same with test rows of its own."""
    rows = {"train": class_rows(0, 45), "test": class_rows(1, 60)}
    return finetuned(Classify, model=start, **rows, **DEFAULTS)


# --- which runs are such runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "kinds", "few"),
    [
        (16, 2, True),
        (128, 2, True),
        (512, 2, False),
        (770, 77, True),  # BANKING77, ten a class
        (1500, 150, True),  # CLINC150, ten a class
        (10_003, 77, False),
        (20, 40, True),  # half a row of each
    ],
)
def test_rows_are_few_by_their_number_and_that_of_the_classes(rows, kinds, few):
    assert scored_rows.are_few(rows, kinds) == few


@pytest.mark.parametrize(
    "asked",
    [
        {"epochs": 3.0},
        {"learning_rate": 1e-4},
        {"adapter": "lora"},
        {"quantize": "int8"},
        {"seeds": 2},
        {"linear_start": False},
        {"dev": class_rows(2, 12)},
    ],
)
def test_who_asks_for_a_training_gets_one(asked, start, few):
    settings = replace(few.settings, **asked)
    made = plan.make_plan(settings)
    assert not made.stays_frozen and "dev" in made.task.data
    assert plan.make_plan(few.settings).stays_frozen


def test_the_reason_is_in_the_messages(few):
    assert any("45 rows of 3 classes" in line and "epochs" in line for line in few.messages)


# --- the score --------------------------------------------------------------------------------------------------------


def test_all_rows_are_scored_out_of_fold_and_fitted(few):
    result = few.result
    lines = (result.directory / "out-of-fold.jsonl").read_text(encoding="utf-8").splitlines()
    predicted = [json.loads(line) for line in lines]
    assert sorted(row["row"] for row in predicted) == [*range(45)]
    assert result.mean == np.mean([row["gold"] == row["predicted"] for row in predicted])
    assert result.measured == "out-of-fold, 45 rows, 15 folds, frozen vectors and TF-IDF" and result.rows == 45
    low, high = result.interval
    assert low < result.mean < high and result.frozen
    assert plan.make_plan(few.settings).task.report.num_rows("train") == 45


def test_near_duplicates_are_in_one_fold(start, few):
    rows = class_rows(0, 30)
    copies = [{**row, "text": row["text"].upper()} for row in rows]
    rows_of = FewRows(plan.make_plan(replace(few.settings, train=rows + copies)).few.task)
    for fold in rows_of.folds + rows_of.score_folds:
        assert {(row + 30) % 60 for row in fold} == {*fold}


def test_the_model_of_the_run_scores_test_rows_as_reported(tested):
    rows = class_rows(1, 60)
    answers = tested.predictor.classify([row["text"] for row in rows])
    right = np.mean([answer.label == row["label"] for answer, row in zip(answers, rows, strict=True)])
    assert right == pytest.approx(tested.result.mean) and tested.result.split == "test"
    stored = tested.predictions
    assert [row["predicted"] for row in stored] == [answer.label for answer in answers]


@pytest.mark.parametrize("kind", ["pairs", *in_soak("numbers", "several labels")])
def test_so_does_that_of_another_kind_of_rows(kind, start, checkpoint_of, finetuned):
    settings_class, rows, options = {
        "numbers": (Regress, number_rows(0, 90), {}),
        "pairs": (Classify, paired(class_rows(0, 90)), {}),
        "several labels": (Classify, with_lists(class_rows(0, 90)), {"multi_label": True}),
    }[kind]
    model = start if kind == "pairs" else checkpoint_of()
    run = finetuned(settings_class, model=model, train=rows[:50], test=rows[50:], **options, **DEFAULTS)
    assert run.result.frozen and run.result.mean > 0.3
    again = bothways.evaluate(run.result.model_directory, rows[50:], dtype="float32")
    assert again[run.result.metric] == pytest.approx(run.result.mean, abs=1e-6)


def paired(rows):
    """Whether the animal of the first text is in the second."""
    return [
        {"text": row["text"], "pair": other["text"], "label": ("no", "yes")[row["label"] == other["label"]]}
        for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]


def with_lists(rows):
    return [{"text": row["text"], "label": [] if row["label"] == "none" else [row["label"]]} for row in rows]


# --- candidates -------------------------------------------------------------------------------------------------------


def test_the_first_two_thirds_of_the_layers_come_first(start, few):
    task = plan.make_plan(few.settings).few.task
    assert task.head_inputs == [HeadInput("mean", 3), HeadInput("mean")]
    asked = replace(few.settings, pooling="cls")
    assert plan.make_plan(asked).few.task.head_inputs == [HeadInput("cls")]


def test_a_checkpoint_without_vectors_may_be_read_in_three_ways(checkpoint_of, few):
    settings = replace(few.settings, model=checkpoint_of(num_hidden_layers=3))
    inputs = plan.make_plan(settings).few.task.head_inputs
    assert inputs == [HeadInput("cls"), HeadInput("mean"), HeadInput("mean", 2)]


@pytest.mark.parametrize(("rows", "folds"), [(30, 10), (45, 15), (120, 30)])
def test_no_class_lacks_more_rows_than_the_others_in_a_fold(rows, folds, few):
    balanced = [{"text": f"text {row}", "label": "abc"[row % 3]} for row in range(rows)]
    task = plan.make_plan(replace(few.settings, train=balanced)).few
    assert len(task.score_folds) == folds and len(task.folds) == 10
    if rows == folds * 3:
        labels = [task.task.tables["train"].labels[row] for row in task.score_folds[0]]
        assert sorted(labels) == ["a", "b", "c"]


@pytest.mark.parametrize(("gain", "chosen"), [(2.0, "clearly"), (0.0, "first"), (-2.0, "first")])
def test_another_candidate_is_chosen_only_if_it_is_clearly_better(gain, chosen, few, monkeypatch):
    monkeypatch.setattr(FewRows, "chosen", CHOSEN)
    rows_of = FewRows(plan.make_plan(few.settings).few.task)
    draw = np.random.default_rng(0)
    gold = np.eye(3)[rows_of.targets.numpy()]
    noise = draw.standard_normal((2, 45, 3)).astype(np.float32)
    first = LinearCandidate("first", HeadInput("mean"), 0.0, (gold + noise[0]).astype(np.float32))
    other = LinearCandidate("clearly", HeadInput("mean"), 0.0, (gold * (1 + gain) + noise[1]).astype(np.float32))
    rows_of.__dict__["candidates"] = [first, other]
    assert rows_of.chosen.name == chosen


@pytest.mark.soak
def test_tfidf_alone_is_the_model_of_the_run_if_it_is_chosen(few, monkeypatch, tmp_path):
    def words(self):
        return next(one for one in self.candidates if one.word_share == 1)

    monkeypatch.setattr(FewRows, "chosen", property(words))
    result = bothways.train(replace(few.settings, out=tmp_path / "run"))
    assert result.delivered == "TF-IDF + logistic regression" and result.encoder["mean"] > 0
    assert result.verdict.startswith("delivered: TF-IDF + logistic regression")
    texts = [row["text"] for row in class_rows(3, 30)]
    answers = bothways.load(result.directory).classify(texts)
    assert np.mean([one.label == row["label"] for one, row in zip(answers, class_rows(3, 30), strict=True)]) > 0.8
    assert (result.directory / "encoder" / "config.json").exists()


@pytest.mark.soak
def test_other_folds_have_scores_of_their_own(few):
    """A training in five folds is compared with linear models of five folds, not of as many as the score has."""
    many = plan.make_plan(few.settings).few
    candidate = next(one for one in many.candidates if one.word_share == 0)
    scored = many.scored(candidate)
    five = replace(many, num_folds=5)
    assert len(five.score_folds) == 5 < len(many.score_folds)
    alone = FewRows(many.task, 5)
    expected = alone.scored(next(one for one in alone.candidates if one.name == candidate.name))
    again = five.scored(next(one for one in five.candidates if one.name == candidate.name))
    assert np.array_equal(again.scores_NC, expected.scores_NC)
    assert not np.allclose(again.scores_NC, scored.scores_NC)


# --- linear models ----------------------------------------------------------------------------------------------------


def random_rows(number=40, features=6, classes=3):
    draw = np.random.default_rng(0)
    x_NF = draw.standard_normal((number, features)).astype(np.float32)
    labels_N = (x_NF[:, :classes] + draw.standard_normal((number, classes))).argmax(1)
    return torch.from_numpy(x_NF), torch.from_numpy(labels_N)


def test_a_row_is_scored_by_the_rows_of_the_other_folds():
    rows = random_rows()
    folds = [[*range(0, 40, 2)], [*range(1, 40, 2)]]
    scores = linear_head.out_of_fold(rows, classification_loss, 3, folds, [1.0, 0.1])
    for fold, others in (folds, folds[::-1]):
        fitted = linear_head.fit_strength(linear_head.take(rows, np.array(others)), classification_loss, 3, 0.1)
        assert torch.allclose(scores[1][fold], fitted(rows[0][fold]), atol=0.02)


def test_the_number_of_threads_changes_no_bit():
    rows, folds = random_rows(), [[*range(start, 40, 5)] for start in range(5)]
    before = torch.get_num_threads()
    results = []
    for number in (1, 3):
        torch.set_num_threads(number)
        results.append(linear_head.out_of_fold(rows, classification_loss, 3, folds, [0.3]))
    torch.set_num_threads(before)
    assert torch.equal(*results)


def test_a_model_of_the_products_of_rows_is_the_one_of_their_terms():
    texts = [row["text"] for row in class_rows(0, 60)]
    labels = np.array([["canine", "feline", "none"].index(row["label"]) for row in class_rows(0, 60)])
    gram = tfidf.gram(texts, None, 3)
    c = 10.0
    fitted = linear_head.fit_strength(
        (gram.features_NR, torch.from_numpy(labels)), classification_loss, 3, 1 / (c * 60), standardize=False
    )
    model = gram.model(fitted.weight_CH.double().numpy(), fitted.bias_C.double().numpy(), strength=c)
    assert np.allclose(model(texts), fitted(gram.features_NR).numpy(), atol=1e-4)
    peer = LogisticRegression(C=c, max_iter=2000, tol=1e-8).fit(gram.x_NF.to_scipy(), labels)
    new = [row["text"] for row in class_rows(1, 40)]
    ours, theirs = model(new), peer.decision_function(model.tfidf(new).to_scipy())
    assert np.allclose(ours - ours.mean(1, keepdims=True), theirs - theirs.mean(1, keepdims=True), atol=0.02)


# --- the saved model --------------------------------------------------------------------------------------------------


def test_the_scores_are_the_sum_of_both_parts(tested):
    model = tested.predictor
    texts = [row["text"] for row in class_rows(4, 20)]
    words = model.description.words
    assert words is not None
    whole = np.log([[*answer.scores.values()] for answer in model.classify(texts)])
    loaded = checkpoint.load(tested.result.model_directory)
    alone = bothways.Predictor(replace(loaded, words=None), dtype="float32").classify(texts)
    encoder = np.log([[*answer.scores.values()] for answer in alone])
    total = encoder + words(texts)
    total -= np.log(np.exp(total).sum(1, keepdims=True))
    assert np.allclose(whole, total, atol=1e-4) and not np.allclose(whole, encoder, atol=1e-2)


def test_it_is_saved_and_computed_by_numpy_alike(tested, tmp_path):
    texts = [row["text"] for row in class_rows(4, 20)]
    expected = [answer.score for answer in tested.predictor.classify(texts)]
    tested.predictor.save(tmp_path / "again")
    for options in ({"dtype": "float32"}, {"backend": "numpy"}):
        again = bothways.load(tmp_path / "again", **options).classify(texts)
        assert np.allclose([answer.score for answer in again], expected, atol=1e-5)


def test_a_new_head_has_no_words(tested):
    loaded = checkpoint.load(tested.result.model_directory)
    assert loaded.words is not None
    assert with_head(loaded, "classes", ("a", "b"), seed=0).words is None


def test_a_missing_file_of_words_is_an_error(tested, tmp_path):
    tested.predictor.save(tmp_path / "part")
    (tmp_path / "part" / "terms.json").unlink()
    with pytest.raises(MissingFile, match=r"terms\.json: missing; copy the whole directory"):
        bothways.load(tmp_path / "part")


def test_the_result_says_who_reads_the_model(few):
    assert "TF-IDF part" in few.result.readers


def test_without_a_training_there_are_no_curves(few):
    assert not (few.result.directory / "curves.svg").exists()
    with pytest.raises(InputError, match="no curves"):
        few.result.plot()


# --- a training that is tried -----------------------------------------------------------------------------------------


@pytest.mark.soak
def test_with_minutes_a_training_is_tried_on_the_same_rows(few, tmp_path):
    messages = []
    with messages_to(messages.append):
        result = bothways.train(replace(few.settings, minutes=600.0, out=tmp_path / "run"))
    log = "\n".join(messages)
    assert "fine-tuning is tried on 5 folds" in log and "fine-tuned on the same 5 folds" in log
    assert ("frozen one is delivered" in log) == result.frozen
    assert not result.frozen or result.verdict.startswith("fine-tuned on the same 5 folds")


def test_without_time_for_it_the_message_says_how_much_it_takes(few, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "Budget", Exhausted)
    messages = []
    with messages_to(messages.append):
        result = bothways.train(replace(few.settings, minutes=0.5, out=tmp_path / "run"))
    assert result.frozen and any("no time to try fine-tuning on 5 folds; " in line for line in messages)


class Exhausted(Budget):
    """The time of a run that began long ago."""

    @staticmethod
    def of(minutes):
        return Budget(60 * minutes, started=time.monotonic() - LONG_AGO)


def test_a_training_without_time_stops_at_once(start, finetuned, monkeypatch, few, tmp_path):
    monkeypatch.setattr(finetune, "Budget", Exhausted)
    settings = replace(few.settings, epochs=20.0, minutes=1.0, folds=None, dev=class_rows(5, 30), out=tmp_path / "run")
    result = bothways.train(replace(settings, train=class_rows(6, 120)))
    assert bothways.open_run(result.directory).mean > 0
    steps = json.loads((result.directory / "bothways.json").read_text(encoding="utf-8"))["steps"]
    assert steps == 1


def test_a_training_that_gets_too_slow_ends_at_an_evaluation(few, monkeypatch, tmp_path):
    """It was planned for all steps, and then the time is over."""
    monkeypatch.setattr(finetune, "Budget", Exhausted)
    monkeypatch.setattr(trials, "seconds_for_training", lambda plan: 1e9)
    settings = replace(few.settings, epochs=20.0, minutes=1.0, patience=None, baselines=False, out=tmp_path / "run")
    bothways.train(replace(settings, train=class_rows(6, 120), dev=class_rows(5, 30)))
    planned = json.loads((tmp_path / "run" / "bothways.json").read_text(encoding="utf-8"))["steps"]
    rows = read_metrics(tmp_path / "run")
    done = max(row["step"] for row in rows)
    first = min(row["step"] for row in rows if row["split"] == "heldout" and row["step"])
    assert first <= done <= first * 1.1 + 1 < planned and rows[-1]["step"] == done


@pytest.mark.parametrize(("part", "allowed"), [(10.0, True), (30.0, False)])
def test_a_part_that_takes_too_much_of_the_minutes_is_left_out(part, allowed):
    budget = Budget(60.0)
    messages = []
    with messages_to(messages.append):
        assert budget.allows("TF-IDF", part) == allowed
    assert (
        ("TF-IDF" in budget.left_out) == (not allowed) == any("left out to keep to 1 min" in line for line in messages)
    )
    assert Budget().allows("TF-IDF", 1e9)


def test_pairs_for_vectors_are_not_concerned(checkpoint_of, tmp_path):
    settings = TrainEmbed(model=checkpoint_of(), train=pair_rows(0, 60), out=tmp_path / "run")
    assert plan.make_plan(settings).few is None


# --- a training that is no clear gain ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def more_rows():
    """Just more than few of two classes."""
    return [row for row in class_rows(7, 420) if row["label"] != "none"][:270]


def test_without_a_clear_gain_linear_models_of_all_rows_are_delivered(few, more_rows, monkeypatch, tmp_path):
    def unclear(before_N, after_N, fraction):
        return Gain(LOSS, 0.4, 0.39, -0.01, 0.03, fraction, len(before_N))

    monkeypatch.setattr(gain_module, "loss_gain", unclear)
    result = bothways.train(replace(few.settings, train=more_rows, batch_tokens=2048, out=tmp_path / "run"))
    assert result.not_delivered.startswith("not delivered: training was not clearly better on dev")
    assert "loss 0.400 before training, 0.390 after it; the gain is -0.010 to +0.030" in result.not_delivered
    assert "delivered: linear models of all rows" in result.not_delivered
    assert result.rows == len(more_rows) and result.measured.startswith("out-of-fold, 270 rows, 30 folds")
    trained = checkpoint.load(tmp_path / "run" / "trained")
    assert trained.model.config.num_hidden_layers == 4 and trained.labels == ("canine", "feline")


def test_with_a_clear_gain_the_trained_model_is(few, more_rows, monkeypatch, tmp_path):
    def clear(before_N, after_N, fraction):
        return Gain(LOSS, 0.4, 0.3, 0.05, 0.15, fraction, len(before_N))

    monkeypatch.setattr(gain_module, "loss_gain", clear)
    monkeypatch.setattr(ClassScoring, "row_losses", falling(ClassScoring.row_losses))
    result = bothways.train(replace(few.settings, train=more_rows, batch_tokens=2048, out=tmp_path / "run"))
    assert result.not_delivered == "" and not result.frozen and result.measured == ""
    assert not (tmp_path / "run" / "trained").exists()


def falling(row_losses):
    """Losses on dev that fall from one evaluation to the next, as of a training that helps."""
    calls = iter(range(1000))

    def losses(self, split, outputs):
        return row_losses(self, split, outputs) * 0.99 ** next(calls)

    return losses


def test_the_gain_of_losses_is_that_of_pairs():
    draw = torch.Generator().manual_seed(0)
    before = torch.rand(100, generator=draw)
    same = loss_gain(before, before, 1.0)
    assert same.low == same.high == 0 and not same.is_clear
    less = loss_gain(before, before - 0.1, 0.5)
    assert less.is_clear and less.low == pytest.approx(0.1, abs=1e-6)
    noise = loss_gain(before, before - 0.01 + torch.randn(100, generator=draw), 1.0)
    assert not noise.is_clear and noise.low < 0 < noise.high
