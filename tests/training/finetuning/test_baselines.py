"""Baselines: equal to scikit-learn's on the same rows, and the verdict of a run."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.inference.predictor import Predictor
from bothways.measure.report import score_tables as page_baselines
from bothways.model.checkpoint import checkpoint
from bothways.model.linear import regressions, tfidf
from bothways.settings import Answer, Classify, Regress, Tag, TrainEmbed
from bothways.tasks import linear_baselines
from bothways.tasks.classify.scoring import ClassEvaluator
from bothways.tasks.classify.training import Classification
from bothways.tasks.embed.files import read_pairs
from bothways.tasks.embed.training import Embedding
from bothways.tasks.regress.training import Regression
from bothways.tasks.scores import Predictions
from bothways.tasks.tag.files import read_splits
from bothways.tasks.tag.training import Tagging
from bothways.tasks.training_task import Baseline
from bothways.text.data import split_tables
from bothways.text.data.splits import selection_folds
from bothways.text.data.squad import Question
from bothways.text.data.tags import Sentence
from bothways.training.finetuning import compare, report
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.model_scores import OUT_OF_FOLD, ModelScores
from bothways.training.finetuning.plan import plan_of
from bothways.training.finetuning.run_models import RunEncoder
from bothways.training.finetuning.scored_rows import ScoredRows
from bothways.training.finetuning.seeds import SeedResult
from tests.training.finetuning.gallery import finish

FROZEN = "frozen vectors + logistic regression"
CONSTANT, TFIDF, RIDGE = "most frequent answer", "TF-IDF + logistic regression", "TF-IDF + ridge regression"


def rows(number, seed=0):
    """Texts with a cat or a dog among other words, and how often."""
    rng = np.random.default_rng(seed)
    for row in range(number):
        words = rng.choice("the and on a b mat ran".split(), int(rng.integers(3, 9))).tolist()
        count = int(rng.integers(1, 4))
        for _ in range(count):
            words.insert(int(rng.integers(len(words) + 1)), ("cat", "dog")[row % 2])
        yield {"text": " ".join(words), "label": ("feline", "canine")[row % 2], "number": count + 0.5}


def write_rows(file, records):
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """train, dev and test; one label in eight is wrong, so that no model is perfect."""
    directory, paths = tmp_path_factory.mktemp("tables"), {}
    for seed, (split, number) in enumerate({"train": 150, "dev": 60, "test": 90}.items()):
        records = [*rows(number, seed)]
        for row in records[::8]:
            row["label"] = "feline"
        paths[split] = write_rows(directory / f"{split}.jsonl", records)
    return paths


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of()


@pytest.fixture
def settings(start, files, tmp_path):
    return settings_of(start, files, tmp_path, linear_start=False)


def settings_of(start, files, directory, *, linear_start):
    return Classify(
        model=start, out=directory / "run", epochs=0.1, dtype="float32", checkpoint_every=1, linear_start=linear_start,
        **files,
    )  # fmt: skip


@pytest.fixture(scope="module")
def weak(start, files, tmp_path_factory):
    """A run with hardly any training, which its tests only read."""
    return finish(settings_of(start, files, tmp_path_factory.mktemp("weak"), linear_start=True))


def read(file):
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in records], [row["label"] for row in records], [row["number"] for row in records]


def peer_parts(least=2):
    return (
        TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+", min_df=least, sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), min_df=least, sublinear_tf=True),
    )


def peer(model):
    return make_pipeline(make_union(*peer_parts()), model)


@pytest.mark.slow
def test_the_scores_are_those_of_scikit_learn_on_the_same_splits(weak, files):
    texts, labels, _ = read(files["train"])
    theirs = {c: peer(LogisticRegression(C=c, max_iter=300)).fit(texts, labels) for c in tfidf.CLASS_STRENGTHS}
    test = read(files["test"])
    result = weak.result
    accuracies = {round(one.score(*test[:2]), 6) for one in theirs.values()}
    assert round(result.baselines[TFIDF], 6) in accuracies and min(accuracies) > 0.7
    assert result.baselines[CONSTANT] == max(map(test[1].count, test[1])) / 90
    facts = weak.metadata
    recorded = facts["result"]
    assert recorded["baselines"] == result.baselines and list(result.baselines)[:2] == [CONSTANT, TFIDF]
    low, high = recorded["baseline_intervals"][TFIDF]
    assert low < result.baselines[TFIDF] <= high + 1e-9 and CONSTANT not in recorded["baseline_intervals"]
    assert facts["rows"] == {"train": 150, "dev": 60, "test": 90}
    assert {*facts["seconds"]} == {"baselines", "linear_start", "trial"} and min(facts["seconds"].values()) > 0
    assert facts["steps"] == max(1, round(0.1 * facts["steps_per_epoch"]))


def test_a_model_of_texts_or_numbers_is_scikit_learns_with_its_strength(files):
    train, dev = (read(files[split]) for split in ("train", "dev"))
    classes = {
        split: np.array([label == "feline" for label in part[1]], int)
        for split, part in zip("td", (train, dev), strict=True)
    }
    rows = [tfidf.TextRows(part[0], None, classes[split]) for split, part in zip("td", (train, dev), strict=True)]
    ours = tfidf.fit(*rows, "classes", 2)
    theirs = peer(LogisticRegression(C=ours.strength, max_iter=300)).fit(train[0], classes["t"])
    scores_N2 = ours(dev[0])
    assert np.abs(np.diff(scores_N2)[:, 0] - theirs.decision_function(dev[0])).max() < 1e-3
    numbers = [tfidf.TextRows(part[0], None, np.array(part[2])) for part in (train, dev)]
    ours = tfidf.fit(*numbers, "number")
    theirs = peer(Ridge(alpha=1 / ours.strength)).fit(train[0], train[2])
    assert np.abs(ours(dev[0])[:, 0] - theirs.predict(dev[0])).max() < 0.01


@pytest.mark.slow
def test_the_last_line_is_the_verdict(weak, tmp_path, capsys):
    """With hardly any training TF-IDF is better; after enough of it neither is worse."""
    assert weak.result.mean < weak.result.baselines[TFIDF] and weak.result.verdict.startswith(f"worse than {TFIDF}: ")
    flags = [f"--{name}={getattr(weak.settings, name)}" for name in ("model", "train", "dev", "test", "dtype")]
    out = tmp_path / "second"
    main.main(["finetune", "classify", *flags, f"--out={out}", "--epochs=20", "--learning-rate=5e-3", "--dropout=0"])
    last = capsys.readouterr().out.splitlines()[-1]
    strong = json.loads((out / "bothways.json").read_text(encoding="utf-8"))["result"]
    low, high = strong["differences"][max(strong["baselines"], key=strong["baselines"].__getitem__)]
    assert last == strong["verdict"]
    assert last.startswith("better than" if low > 0 else "worse than" if high < 0 else "cannot tell")
    assert strong["mean"] > weak.result.mean and f"{strong['mean']:.2%} (fine-tuned)" in last


def test_without_baselines_there_is_no_verdict(gallery):
    assert not gallery.settings("classify").baselines
    assert (gallery.classify.result.baselines, gallery.classify.result.verdict) == ({}, "")
    assert page_baselines.BaselineComparison.heading not in gallery.classify.report
    assert "baselines" not in gallery.classify.metadata["seconds"]


@pytest.mark.slow
def test_the_page_shows_baselines_and_verdict(weak):
    page, result = weak.report, weak.result
    assert page_baselines.BaselineComparison.heading in page and result.verdict in page.split("<nav")[0]
    assert f"{TFIDF}: {result.baselines[TFIDF]:.4g}" in page


@pytest.mark.slow
def test_a_resumed_run_does_not_recompute_baselines(settings):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(settings, callbacks=[stop])
    again, baselines = [], Classification.baselines
    with mock.patch.object(
        Classification, "baselines", lambda task, split: (again.append(split), baselines(task, split))[1]
    ):
        result = run_task(replace(settings, resume=True))
    assert again in ([], ["dev"])  # on dev, where the model that is saved is fitted
    assert {*result.baselines} >= {CONSTANT, TFIDF}


@pytest.mark.slow
def test_in_cross_validation_they_are_of_the_same_folds(settings, files):
    seen = []
    fit = tfidf.fit

    def watched(train, dev, *rest, **options):
        seen.append((set(train.texts), set(dev.texts)))
        return fit(train, dev, *rest, **options)

    own_scores, splits = Classification.baselines, []

    def baselines_of(task, split, words=True):
        splits.append((split, {*task.tables["test"].texts} if "test" in task.tables else None))
        return own_scores(task, split)

    with (
        mock.patch.object(tfidf, "fit", watched),
        mock.patch.object(Classification, "baselines", baselines_of),
    ):
        result = run_task(replace(settings, dev=None, test=None, folds=2))
    held = [json.loads(line) for line in (settings.out / OUT_OF_FOLD).read_text(encoding="utf-8").splitlines()]
    texts = read(files["train"])[0]
    for fold, (train, dev) in enumerate(seen[:2]):
        own = {texts[row["row"]] for row in held if row["fold"] == fold}
        assert splits[fold] == ("test", own)
        assert own and not own & (train | dev) and own | train | dev == set(texts)
    assert 0.6 < result.baselines[TFIDF] <= 1 and result.split == "folds"


def test_numbers_have_ridge_regression_in_their_own_unit(start, files, tmp_path):
    shift = 40.0
    moved = {}
    for split, file in files.items():
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        moved[split] = write_rows(
            tmp_path / file.name, [{"text": row["text"], "score": row["number"] + shift} for row in records]
        )
    settings = Regress(model=start, out=tmp_path / "run", epochs=0.1, dtype="float32", **moved)
    task = Regression.build(settings, checkpoint.load(start), split_tables.read_tables(settings))
    (one, *_) = task.baselines("test")
    gold, predicted = np.array(one.predictions.gold), np.array(one.predictions.predicted)
    assert abs(predicted.mean() - gold.mean()) < 0.3 and np.corrcoef(gold, predicted)[0, 1] > 0.6
    assert one.name == RIDGE and np.abs(one.model(task.tables["test"].texts)[:, 0] - predicted).max() < 1e-9


@pytest.mark.slow
def test_texts_with_several_labels_and_pairs_have_them_too(start, files, tmp_path):
    def both(row):
        label = [row["label"], *(["many"] if row["number"] > 2 else [])]
        return {"text": row["text"], "pair": row["text"][::-1], "label": label}

    records = [json.loads(line) for line in files["train"].read_text(encoding="utf-8").splitlines()[:100]]
    file = write_rows(tmp_path / "several.jsonl", map(both, records))
    settings = Classify(
        model=start, train=file, out=tmp_path / "run", epochs=0.1, multi_label=True, dtype="float32", linear_start=False
    )
    result = run_task(settings)
    assert result.baselines[TFIDF] > max(0.8, result.baselines[CONSTANT])


@pytest.mark.parametrize("texts", [["!", " ", "?", "!"] * 3, ["\U0001f600"] * 12, ["a"] * 12])
def test_texts_without_words_are_no_error(texts):
    rows = tfidf.TextRows(texts, None, np.arange(len(texts)) % 2)
    assert np.isfinite(tfidf.fit(rows, rows, "classes", 3)(["", "new words", "!"])[:, :2]).all()


def test_pairs_have_frozen_vectors_and_numbers_their_cosine(start, tmp_path):
    rng = np.random.default_rng(5)
    lines = []
    for _ in range(90):
        words = rng.choice("the and on a b mat ran cat dog".split(), 6).tolist()
        same = int(rng.integers(0, 7))
        other = [*words[:same], *rng.choice([*"xyz"], 6 - same).tolist()]
        lines.append({"text": " ".join(words), "pair": " ".join(other), "score": same})
    settings = Regress(
        model=start, train=write_rows(tmp_path / "t.jsonl", lines), out=tmp_path / "run", epochs=0.1, dtype="float32"
    )
    task = Regression.build(settings, checkpoint.load(start), split_tables.read_tables(settings))
    predictions = {one.name: one.predictions for one in task.baselines("test")}
    assert [*predictions] == [RIDGE, "frozen vector pairs + ridge regression", "cosine of frozen vectors"]
    table = task.tables["test"]
    first, second = (
        Predictor(checkpoint.load(start), dtype="float32").embed(part) for part in (table.texts, table.pairs)
    )
    cosines = np.array(predictions["cosine of frozen vectors"].predicted)
    assert np.abs(np.corrcoef(cosines, (first * second).sum(1))[0, 1] - 1) < 1e-6
    assert all(task.scoring.score_predictions(one)["spearman"] > 0.8 for one in predictions.values())


def test_a_word_gets_the_tag_that_it_has_most_often():
    def sentence(words, tags):
        return Sentence(tuple(words.split()), tuple(tags.split()), "here:1")

    train = [sentence("Paris is Paris", "B-LOC O B-PER"), sentence("Paris or Rome", "B-LOC O B-LOC")]
    test = [sentence("Rome is in Paris", "O O O O")]
    assert linear_baselines.most_frequent_tags(train, test, plain=False) == [["B-LOC", "O", "O", "B-LOC"]]
    assert linear_baselines.most_frequent_tags(train, test, plain=True) == [["B-LOC", "O", "B-LOC", "B-LOC"]]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where did the dog run?", "The dog ran to Rome!"),
        ("Who sat?", "A cat sat on a mat."),
        ("?", "A cat sat on a mat."),
    ],
)
def test_the_sentence_with_most_of_the_questions_words_answers(question, answer):
    context = "A cat sat on a mat. The dog ran to Rome! It cost 3.5 euros"
    assert linear_baselines.best_matching_sentence(Question("1", question, context, (), False, "here")) == answer
    assert linear_baselines.best_matching_sentence(Question("1", question, " ", (), False, "here")) == ""


@pytest.mark.slow
def test_taggers_and_readers_have_them_in_their_runs(start, tmp_path):
    """Of the words' tags one is never seen in train, so the most frequent tag finds 2 of 3 words."""
    rows = [{"words": ["the", "cat", "ran"], "tags": ["O", "B-PET", "O"]}] * 6
    tagged = write_rows(tmp_path / "tags.jsonl", rows)
    test = write_rows(tmp_path / "test.jsonl", [*rows[:2], {"words": ["a", "dog"], "tags": ["O", "B-PET"]}])
    options = {"model": start, "epochs": 0.1, "dtype": "float32", "linear_start": True}
    result = run_task(Tag(train=tagged, dev=tagged, test=test, out=tmp_path / "tagger", context=False, **options))
    assert result.baselines["most frequent tag per word"] == pytest.approx(0.8)  # 2 of 2 are right, 2 of 3 found
    assert 0 <= result.baselines["frozen states + logistic regression"] <= 1
    question = {"context": "the cat sat. a dog ran.", "answers": {"text": ["dog"], "answer_start": [15]}}
    questions = [{"id": str(row), "question": "what ran?", **question} for row in range(4)]
    squad = write_rows(tmp_path / "squad.jsonl", questions)
    result = run_task(Answer(train=squad, dev=squad, out=tmp_path / "reader", **options))
    # "a dog ran." is normalized to "dog ran": of its words one of two is right
    assert result.baselines["sentence that shares most words with the question"] == pytest.approx(2 / 3)


@pytest.mark.slow
def test_the_better_model_is_saved_and_printed_and_read_like_any_other(settings, files, capsys):
    main.main(["finetune", "classify", *arguments(settings)])
    printed = capsys.readouterr().out
    result = run_task(replace(settings, resume=True))
    saved = result.model_directory
    assert result.delivered == TFIDF and f"delivered: {TFIDF}" in result.verdict
    assert result.baselines[TFIDF] == result.mean > result.encoder["mean"] and not (settings.out / "tfidf").exists()
    assert printed.startswith("test accuracy ") and f"measured {result.mean:.2%}" in printed
    assert f"{result.encoder['mean']:.2%}" in printed
    low, high = result.interval
    assert low < result.mean <= high + 1e-9 and result.scores == [result.mean] and result.failed == 0
    page = (settings.out / "report.html").read_text(encoding="utf-8")
    assert f"{TFIDF} fitted to" in page and f"{result.mean:.1%}" in page.split("<nav")[0]
    assert "fine-tuned encoder (not delivered)" in page
    stored = {name: read_facts(settings.out / name)["result"] for name in ("", "model", "encoder")}
    assert [stored[name]["mean"] for name in stored] == [result.mean, result.mean, result.encoder["mean"]]
    assert checkpoint.load(settings.out / "encoder").model.config.num_hidden_layers == 3  # beside it
    with pytest.raises(InputError, match=f"no encoder.*pass {settings.out / 'encoder'}"):
        checkpoint.load(saved)
    assert len({file.stat().st_mode for file in saved.iterdir()}) == 1
    assert "only Bothways reads this model" in result.readers and result.readers in printed.splitlines()
    model = bothways.load(settings.out)
    texts, labels, _ = read(files["test"])
    predicted = model.classify(texts)
    with (settings.out / "predictions.csv").open(encoding="utf-8-sig") as file:
        assert [row["predicted"] for row in csv.DictReader(file)] == [one.label for one in predicted]
    right = sum(one.label == label for one, label in zip(predicted, labels, strict=True))
    assert right / 90 == pytest.approx(result.baselines[TFIDF])
    assert sum(predicted[0].scores.values()) == pytest.approx(1) and {*predicted[0].scores} == {"feline", "canine"}
    main.main(["evaluate", str(settings.out), str(files["test"]), "--json"])
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == pytest.approx(result.baselines[TFIDF])
    main.main(["predict", str(settings.out), str(files["test"])])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["label"] for one in lines] == [one.label for one in predicted]
    model.save(settings.out.with_name("copy"))
    assert bothways.load(settings.out.with_name("copy")).classify(texts[:9]) == predicted[:9]
    for call in (model.embed, model.tag, lambda texts: model.classify(texts, texts)):
        with pytest.raises(InputError):
            call(texts[:2])


def read_facts(directory):
    return json.loads((directory / "bothways.json").read_text(encoding="utf-8"))


def arguments(settings):
    named = {"--train": settings.train, "--dev": settings.dev, "--test": settings.test, "--model": settings.model}
    named |= {"-o": settings.out, "--epochs": settings.epochs, "--dtype": settings.dtype, "--checkpoint-every": 1}
    return [
        *(str(part) for pair in named.items() for part in pair),
        *["--no-linear-start"] * (not settings.linear_start),
    ]


@pytest.mark.slow
def test_folds_are_scored_by_the_kind_of_model_that_is_delivered(settings, files):
    options = {"dev": None, "test": None, "folds": 2}
    records = [*rows(200)]
    result = run_task(replace(settings, train=write_rows(settings.out.with_name("t.jsonl"), records), **options))
    assert result.delivered == TFIDF and result.mean == pytest.approx(result.baselines[TFIDF])
    assert len(result.scores) == 2 and result.mean > result.encoder["mean"]
    lines = (settings.out / "out-of-fold.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert sum(row["gold"] == row["predicted"] for row in found) / len(found) == pytest.approx(result.pooled)


@pytest.mark.parametrize("option", [{"adapter": "lora"}, {"quantize": "int8"}, {"teacher": Path("teacher")}, {}])
def test_who_asks_for_a_kind_of_encoder_gets_it(option, settings, files):
    """Whatever the scores: TF-IDF is far better on dev."""
    scoring = mock.Mock(score_predictions=scores_of, trivial_baseline=CONSTANT)
    task = mock.Mock(metric="accuracy", scoring=scoring, data={"test": ()}, keeps_start="")
    task.baselines.return_value = iter([Baseline(TFIDF, one_sided(300, 300), mock.Mock())])
    real = Classification.build(settings, checkpoint.load(settings.model), split_tables.read_tables(settings))
    plan = replace(plan_of(ScoredRows(replace(settings, **option), real)), task=task)
    score = Score.of_scores("", scores_of(one_sided(300, 150)), "accuracy")
    rival = Score(TFIDF, 1.0, (0.99, 1.0), np.ones(50), 300, one_sided(300, 300))
    facts = {"accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "rows": 300, "baseline": 0.5, "best_step": 1}
    kept = SeedResult(0, None, {"dev": facts, "test": facts}, {"dev": score}, None, None, {}, [])
    measured = ModelScores(task, "test", {0: kept.metrics}, 0, score)
    encoder = RunEncoder(mock.Mock(), measured, kept=kept)
    scores = compare.compare(plan, encoder, [rival], mock.MagicMock(directory=settings.out))
    assert (scores.delivered is encoder) == bool(option)
    assert scores.rival.scores.mean == 1.0
    assert ("delivered" in scores.verdict) == (not option) and "delivered" not in scores.model_verdict


def scores_of(predictions):
    return ClassEvaluator().compare(predictions.gold, predictions.predicted, predictions.groups)


def one_sided(number, right):
    """Predictions of a model that has the first `right` of some rows right."""
    gold = ["a"] * number
    predicted = [*["a"] * right, *["b"] * (number - right)]
    return Predictions([*map(str, range(number))], gold, predicted, [*map(str, range(number))], [None] * number)


@pytest.mark.parametrize(("number", "is_clear"), [(12, False), (300, True)])
def test_a_lead_on_a_few_rows_of_dev_is_not_clear(number, is_clear):
    """Of 12 rows the rival has 3 more right; of 300, 75."""
    task = mock.Mock(metric="accuracy", scoring=mock.Mock(score_predictions=scores_of))
    own = scores_of(one_sided(number, number // 2))
    dev = {"dev": {"accuracy": own["accuracy"]}}
    seed = SeedResult(0, None, dev, {"dev": Score.of_scores("", own, "accuracy")}, None, None, {}, [])
    encoder = mock.Mock(kept=seed)
    low, high = compare.lead_on_dev(task, Baseline(TFIDF, one_sided(number, 3 * number // 4)), encoder)
    assert (low > 0) == is_clear and low < 0.25 < high


@pytest.mark.slow
def test_a_model_of_numbers_is_saved_in_their_unit(start, files, tmp_path):
    lines = [{"text": text, "score": number + 40} for text, _, number in zip(*read(files["train"]), strict=True)]
    file = write_rows(tmp_path / "t.jsonl", lines)
    result = run_task(Regress(model=start, train=file, out=tmp_path / "run", epochs=0.1, linear_start=True))
    assert result.mean < result.baselines[RIDGE]
    numbers = bothways.load(tmp_path / "run" / "tfidf").regress([line["text"] for line in lines])
    assert abs(numbers.mean() - 42.5) < 0.3 and np.corrcoef(numbers, [line["score"] for line in lines])[0, 1] > 0.6


def test_single_texts_have_the_best_linear_model_on_frozen_means(settings, start):
    task = Classification.build(settings, checkpoint.load(start), split_tables.read_tables(settings))
    names = [one.name for one in task.baselines("test")]
    (baseline,) = [one for one in task.baselines("test") if one.name == FROZEN]
    assert names == [TFIDF, FROZEN]
    model = Predictor(checkpoint.load(start), dtype="float32")
    means = {split: model.embed(task.tables[split].texts, pooling="mean", normalize=False) for split in task.tables}
    means = {split: (x - means["train"].mean(0)) / means["train"].std(0) for split, x in means.items()}
    accuracies = []
    for strength in linear_baselines.STRENGTHS:
        peer = LogisticRegression(C=strength / len(means["train"]), max_iter=1000)
        predicted = peer.fit(means["train"], task.tables["train"].labels).predict(means["test"])
        accuracies.append(np.mean(predicted == np.array(baseline.predictions.predicted)))
    assert max(accuracies) > 0.98 and min(accuracies) < max(accuracies)


@pytest.mark.parametrize("scored", [True, False])
def test_vectors_are_measured_beside_tf_idf(start, tmp_path, scored):
    rng = np.random.default_rng(1)
    lines = []
    for row in range(60):
        words = rng.choice("the and on a b mat ran cat dog".split(), 5, replace=False).tolist()
        same = 2 + row % 4
        other = [*words[:same], *rng.choice([*"uvwxyz"], 5 - same, replace=False).tolist()]
        lines.append({"text": " ".join(words), "pair": " ".join(other), **({"score": same} if scored else {})})
    settings = TrainEmbed(
        model=start, train=write_rows(tmp_path / "t.jsonl", lines), out=tmp_path / "run", epochs=0.1, dtype="float32"
    )
    task = Embedding.build(settings, checkpoint.load(start), read_pairs(settings))
    (baseline,) = task.baselines("dev")
    first, second = task.pairs["dev"].texts[:2]
    fitted = make_union(*peer_parts()).fit([*task.pairs["train"].texts[0], *task.pairs["train"].texts[1]])
    cosines = (fitted.transform(first) @ fitted.transform(second).T).toarray() / 2
    if scored:
        assert np.abs(2 * cosines.diagonal() - baseline.predictions.predicted).max() < 1e-9
    else:
        ranks = (cosines > cosines.diagonal()[:, None]).sum(1) + 1
        assert task.scoring.score_predictions(baseline.predictions)["ndcg@10"] == pytest.approx(
            np.where(ranks > 10, 0, 1 / np.log2(1 + ranks)).mean()
        )


def test_frozen_states_beat_the_most_frequent_tag_on_ambiguous_words(start, tmp_path):
    """A word's tag depends on the word before it, which its frozen state encodes."""
    rng = np.random.default_rng(3)
    lines = []
    for _ in range(120):
        words = rng.choice(["the", "cat", "dog", "ran"], 5).tolist()
        tags = ["X", *("A" if before == "cat" else "X" for before in words[:-1])]
        lines.append({"words": words, "tags": tags})
    file = write_rows(tmp_path / "tags.jsonl", lines)
    settings = Tag(model=start, train=file, out=tmp_path / "run", scheme="plain", context=False, dtype="float32")
    task = Tagging.build(settings, checkpoint.load(start), read_splits(settings))
    commonest, frozen = (task.scoring.score_predictions(one.predictions)["accuracy"] for one in task.baselines("test"))
    assert frozen > commonest + 0.05


@pytest.mark.parametrize(("classes", "unlabelled"), [(301, ()), (3, ("more.txt",))])
def test_training_rows_are_not_judged_beside_unlabelled_texts_or_with_very_many_classes(classes, unlabelled):
    task = SimpleNamespace(settings=SimpleNamespace(unlabelled=unlabelled), num_outputs=classes)
    assert linear_baselines.predict_out_of_fold(task) is None


def test_the_strength_is_the_one_of_the_highest_score_and_of_equal_ones_the_lowest_loss():
    draw = np.random.default_rng(0)
    features = draw.standard_normal((300, 5))
    targets = (features[:, 0] + draw.standard_normal(300) > 1.2).astype(np.int64)
    half = (features[:150], targets[:150]), (features[150:], targets[150:])
    strengths = (1e-4, 1e-2, 1.0, 100.0)

    def chosen(score=None):
        return regressions.fit(*half, "classes", 2, strengths, score=score)[2]

    assert chosen(lambda scores_NC, gold: float(abs(scores_NC).mean())) == 100.0
    assert chosen(lambda scores_NC, gold: -float(abs(scores_NC[:, 0] - scores_NC[:, 1]).std())) == 1e-4
    assert chosen(lambda scores_NC, gold: 1.0) == chosen()


def verdict_of(scores, differences, *, frozen=False, mean=0.8, rows=100, saved=None):
    """The verdict on a model, beside baselines with these scores."""
    score = mock.Mock(frozen=frozen, mean=mean, rows=rows)
    plan = mock.Mock(measured="", sources={"model": "start"})
    rivals = [Score(name, value) for name, value in scores.items()]
    return compare.verdict(mock.Mock(scores=score), rivals, differences, plan, saved or {})


@pytest.mark.parametrize(
    ("best", "frozen", "way"),
    [
        (TFIDF, False, "predict runs/tfidf FILE"),
        (FROZEN, False, "--learning-rate 0 --pooling mean"),
        ("frozen vector pairs + logistic regression", False, "--learning-rate 0 --pooling pair"),
        ("frozen states + logistic regression", False, "--learning-rate 0"),
        ("cosine of frozen vectors", True, "the cosine is the product of the vectors"),
        (FROZEN, True, ""),
        (CONSTANT, False, ""),
    ],
)
def test_the_verdict_names_the_best_baseline_and_how_to_keep_it(best, frozen, way):
    scores = {CONSTANT: 0.5, TFIDF: 0.8, FROZEN: 0.8, best: 0.9}
    line = verdict_of(scores, {best: (-0.16, -0.04)}, frozen=frozen, saved={TFIDF: Path("runs/tfidf")})
    assert line.startswith(f"worse than {best}: 80.00%") and line.endswith(
        way or "-16.0 to -4.0 points (95 % interval)"
    )
    assert ("embed start FILE" in line) == best.startswith("cosine")
    assert ("tfidf" in line) == (best == TFIDF) and ("--learning-rate" in line) == ("--learning-rate" in way)


@pytest.mark.parametrize(
    ("difference", "beginning"),
    [
        ((0.01, 0.1), f"better than the best baseline, {TFIDF}: "),
        ((-0.1, -0.01), f"worse than {TFIDF}: "),
        ((-0.02, 0.1), f"cannot tell whether it is better than {TFIDF}: "),
        ((-0.1, 0.02), f"cannot tell whether it is better than {TFIDF}: "),
        ((0.0, 0.0), f"cannot tell whether it is better than {TFIDF}: "),
        ((1e-16, 1e-16), f"cannot tell whether it is better than {TFIDF}: "),  # an exact tie, summed in another order
        ((-1e-16, -1e-16), f"cannot tell whether it is better than {TFIDF}: "),
    ],
)
def test_a_difference_within_its_interval_decides_nothing(difference, beginning):
    scores = {CONSTANT: 0.5, TFIDF: 0.8, FROZEN: 0.7}
    line = verdict_of(scores, {TFIDF: difference}, rows=50, saved={TFIDF: Path("runs/tfidf")})
    assert line.startswith(beginning)
    assert ("predict runs/tfidf FILE" in line) == (not line.startswith("better"))


def test_an_exact_tie_is_never_better_in_any_order_of_the_sums():
    """Means over seeds or folds of equal scores are rarely equal floats."""
    rng = np.random.default_rng(4)
    for _ in range(3000):
        num_rows, num_scores = int(rng.integers(20, 400)), int(rng.integers(1, 6))
        values = rng.integers(1, num_rows, num_scores) / num_rows
        mean, score = float(np.mean(values)), float(sum(values[::-1]) / num_scores)
        resamples = mean + rng.standard_normal(19) * 0.1
        baseline = Score(TFIDF, score, None, resamples + (score - mean), 30)
        difference = Score("", mean, None, resamples, 30).difference(baseline)
        assert not compare.is_clearly_better(difference)
        assert verdict_of({TFIDF: score}, {TFIDF: difference}, mean=mean, rows=9).startswith("cannot tell")


@pytest.mark.parametrize(
    ("difference", "interval", "rows", "expected"),
    [
        (0.02, (-0.08, 0.12), 50, 1300),  # five times narrower: 25 times as many rows
        (0.05, (-0.05, 0.15), 200, 800),
        (0.0999, (-0.0001, 0.2), 30, 31),
        (0.0, (-0.1, 0.1), 50, None),
        (1e-5, (-0.1, 0.1), 50, None),
        (0.0, (0.0, 0.0), 50, None),
    ],
)
def test_the_rows_that_would_show_a_difference(difference, interval, rows, expected):
    assert compare.rows_needed(difference, interval, rows) == expected


@pytest.mark.parametrize(("num_rows", "beginning"), [(1, "cannot tell"), (3, "cannot tell"), (12, "better than")])
def test_a_few_rows_on_which_one_model_is_always_right_decide_nothing(num_rows, beginning):
    right, wrong = (Score(TFIDF, value, None, np.full(200, value), num_rows) for value in (1.0, 0.0))
    difference = right.difference(wrong)
    assert verdict_of({TFIDF: 0.0}, {TFIDF: difference}, mean=1.0, rows=9).startswith(beginning)


def test_differences_are_paired_by_row():
    """Two models with the same mistakes but for a few rows differ by little more than these rows."""
    rng = np.random.default_rng(5)
    right = rng.random(400) < 0.7
    also = right.copy()
    also[np.flatnonzero(right)[:14]] = False  # 3.5 points worse; the interval of either score is +- 4.5 points
    gold = ["yes"] * 400
    scores = [
        ClassEvaluator().compare(gold, ["yes" if one else "no" for one in rows]) for rows in (right, also)
    ]  # fmt: skip
    best, other = (Score.of_scores(FROZEN, one, "accuracy") for one in scores)
    low, high = best.difference(other)
    assert scores[1]["accuracy_interval"][1] > scores[0]["accuracy_interval"][0]
    error = np.sqrt(14 / 400 * (1 - 14 / 400) / 400)
    assert (low, high) == pytest.approx((0.035 - 1.96 * error, 0.035 + 1.96 * error), abs=0.006) and low > 0


def test_without_training_the_model_is_a_linear_head_on_the_frozen_encoder(settings):
    """The way that the verdict names."""
    result = run_task(replace(settings, learning_rate=0.0, pooling="mean", epochs=0.1, linear_start=True))
    assert result.frozen
    before, after = (
        checkpoint.load(path).model.encoder.state_dict() for path in (settings.model, result.model_directory)
    )
    assert all(after[name].equal(value) for name, value in before.items())


def test_counts_are_not_scores(gallery):
    """The report lists scores only: no number of texts, words or queries."""
    figures = gallery.classify.metadata["figures"]
    shown = {row.metric for row in report.other_scores(mock.Mock(metric="accuracy"), figures, ["dev", "test"])}
    assert shown and not shown & {"texts", "words", "sentences", "pairs", "queries", "rows", "n", "best_step"}


def test_folds_that_choose_penalties_and_intervals_keep_near_duplicates_together(start, tmp_path):
    """For the linear start, TF-IDF and frozen vectors, of classes and of numbers; for tags, documents."""
    records = [{**row, "text": text} for row in rows(40) for text in (row["text"], f"{row['text'].upper()} !")]
    file = write_rows(tmp_path / "copies.jsonl", records)
    texts = {"model": start, "train": file, "out": tmp_path / "run", "epochs": 1, "dtype": "float32"}
    words = [{"words": row["text"].split(), "tags": ["O"] * len(row["text"].split())} for row in records]
    for number, row in enumerate(words):
        row["tags"][0] = "B-PET" if number % 4 < 2 else "O"
    tagged = write_rows(tmp_path / "tags.jsonl", words[:24])
    classes, numbers = Classify(**texts), Regress(**texts, label_column="number")
    tags = Tag(**{**texts, "train": tagged}, context=False)
    tables = [split_tables.read_tables(one) for one in (classes, numbers)]
    loaded = checkpoint.load(start)
    tasks = [
        Classification.build(classes, loaded, tables[0]),
        Regression.build(numbers, loaded, tables[1]),
        Tagging.build(tags, loaded, read_splits(tags)),
    ]
    for task in tasks:
        calls = []

        def watched(targets, groups, calls=calls, **options):
            calls.append((len(targets), groups))
            return selection_folds(targets, groups, **options)

        with mock.patch.object(regressions, "selection_folds", watched):
            task.fit_head(task.initial_checkpoint(0).model)
            baseline, *_ = task.baselines("test")
        if task.name == "tag":
            assert len(calls) == 1 and len(set(calls[0][1])) < len(words[:24])
        else:
            num_texts = len({*task.tables["train"].keys})
            assert len(calls) == 3  # linear start, TF-IDF, frozen vectors
            assert all(number == 2 * len(set(groups)) == 2 * num_texts for number, groups in calls)
            scores = task.scoring.score_predictions(baseline.predictions)
            assert scores.intervals.num_units == len({*task.tables["test"].keys}) < len(task.tables["test"])
