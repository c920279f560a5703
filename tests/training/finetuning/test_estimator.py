"""TextClassifier keeps to the rules of scikit-learn's estimators, and works in its tools and in cleanlab's."""

import pickle

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import bothways
from bothways.base.errors import InputError

pytestmark = pytest.mark.slow
TEXTS = [f"{word} {animal} {'on ' * times}".strip() for word in ("the", "ran") for times in range(5)
         for animal in ("cat", "dog")]  # fmt: skip
LABELS = ["feline" if "cat" in text else "canine" for text in TEXTS]


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of()


@pytest.fixture(scope="module")
def classifier(start):
    return bothways.TextClassifier(start, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def fitted(classifier):
    return clone(classifier).fit(TEXTS, LABELS)


def test_parameters_are_kept_as_they_are(start):
    made = bothways.TextClassifier(start, epochs=2)
    assert made.get_params()["epochs"] == 2 and made.get_params()["model"] is start
    copy = clone(made).set_params(epochs=3, seed=5)
    assert (copy.epochs, copy.seed, made.epochs, made.seed) == (3, 5, 2, 0)
    assert [*vars(made)] == [*made.get_params()] or {*vars(made)} == {*made.get_params()}
    assert is_classifier(made) and "epochs=2" in repr(made)
    with pytest.raises(ValueError, match="nothing"):
        made.set_params(nothing=1)


def test_it_predicts_only_after_fit(classifier):
    for name in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(classifier, name)(TEXTS)


def test_it_learns_labels_that_are_strings(fitted):
    assert [*fitted.classes_] == ["canine", "feline"]
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (20, 2) and probabilities.sum(1) == pytest.approx(1.0)
    assert [*fitted.predict(TEXTS)] == [*fitted.classes_[probabilities.argmax(1)]]
    assert fitted.score(TEXTS, LABELS) == 1.0


@pytest.mark.parametrize("container", [np.array, pandas.Series, lambda rows: pandas.DataFrame({"any": rows}), iter])
def test_texts_may_be_any_column(fitted, container):
    if container is iter:
        with pytest.raises(InputError):
            fitted.predict([TEXTS[:2], TEXTS[2:4]])
    else:
        assert [*fitted.predict(container(TEXTS))] == [*fitted.predict(TEXTS)]


def test_refused_texts_are_none_only_where_a_threshold_is_given(fitted):
    shares = fitted.predict_proba(TEXTS).max(1)
    least = (shares.min() + shares.max()) / 2
    found = fitted.predict(TEXTS, min_score=least)
    assert [label is None for label in found] == (shares < least).tolist()
    assert [label for label in found if label is not None] == fitted.predict(TEXTS)[shares >= least].tolist()
    assert fitted.predict(TEXTS).dtype.kind == "U" and None not in fitted.predict(TEXTS, min_score=0)
    assert {*fitted.predict(["b " * 40, *TEXTS], in_scope=0.8)} <= {None, "canine", "feline"}


def test_labels_may_be_numbers(classifier):
    numbers = [7 if label == "feline" else -1 for label in LABELS]
    made = clone(classifier).fit(TEXTS, np.array(numbers))
    assert made.classes_.tolist() == [-1, 7] and made.predict(TEXTS).tolist() == numbers


def test_labels_that_are_no_classes_are_refused(classifier):
    for labels in (["a"] * 20, LABELS[:-1], np.linspace(0.1, 1, 20)):
        with pytest.raises(ValueError):
            clone(classifier).fit(TEXTS, labels)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", "b", None], "Input y contains NaN"),
        (["a", "b", float("nan")], "Input y contains NaN"),
        ([0, 1, None], "Input y contains NaN"),
        (pandas.Series(["a", "b", pandas.NA]), "Input y contains NaN"),
        (pandas.Series([0, 1, pandas.NaT], dtype=object), "Input y contains NaN"),
        (["a", "b", 1], r"uniformly strings or numbers. Got \['int', 'str'\]"),
        ([["a", "b"]] * 3, "1d array"),
        (["a", None, None], "2 labels are missing, the first in row 1; drop such rows"),
        (np.array([[0, 1], [1, 0], [1, 1]]), "indicator matrix or lists.*multi_label=True"),
        (pandas.DataFrame({"a": [0, 1, 0], "b": [1, 0, 0]}), "indicator matrix or lists.*multi_label=True"),
        (csr_matrix(np.eye(3)), "indicator matrix or lists.*multi_label=True"),
        ([["a", "b"], ["a"], []], "indicator matrix or lists.*multi_label=True"),
        (None, "requires y to be passed"),
        (["a", "b"], "inconsistent numbers of samples"),
        (["a", "a", "a"], "one class"),
        ([0.5, 1.5, 2.5], "continuous"),
        (["a", "b", "a"], r"Found array with 3 sample\(s\) of 2 classes"),
    ],
)
def test_labels_that_are_none_are_refused_in_the_words_of_scikit_learn(labels, words, start):
    with pytest.raises(ValueError, match=words):
        bothways.TextClassifier(start).fit(TEXTS[:3], labels)


def test_no_text_is_refused_in_the_words_of_scikit_learn(start):
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        bothways.TextClassifier(start).fit([], [])


def test_a_column_vector_of_labels_is_read_with_the_warning_of_scikit_learn(classifier):
    with pytest.warns(DataConversionWarning, match="column-vector"):
        made = clone(classifier).fit(TEXTS, np.array(LABELS)[:, None])
    assert [*made.classes_] == ["canine", "feline"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # of checks with tables of numbers
def test_the_checks_of_scikit_learn_that_need_no_numbers_pass(start):
    made = bothways.TextClassifier(start)
    check_estimator(made)
    for name in (
        "no_attributes_set_in_init", "parameters_default_constructible", "get_params_invariance", "set_params",
        "estimator_repr", "valid_tag_types", "estimator_tags_renamed", "estimators_unfitted", "mixin_order",
        "estimator_cloneable", "do_not_raise_errors_in_init_or_set_params",
    ):  # fmt: skip
        getattr(estimator_checks, f"check_{name}")("TextClassifier", made)


def test_a_pickled_classifier_predicts_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()


def test_the_run_is_kept_on_request(classifier, tmp_path):
    clone(classifier).set_params(out=tmp_path / "run").fit(TEXTS, LABELS)
    assert (tmp_path / "run" / "report.html").exists()


def test_it_works_in_the_tools_of_scikit_learn(classifier):
    steps = [("strip", FunctionTransformer(lambda texts: [text.strip() for text in texts])), ("model", classifier)]
    pipeline = Pipeline(steps)
    probabilities = cross_val_predict(pipeline, TEXTS, LABELS, cv=2, method="predict_proba")
    assert probabilities.shape == (20, 2) and probabilities.sum(1) == pytest.approx(1.0)
    halves = [([*range(10)], [*range(10, 20)])]  # one fit for each window
    search = GridSearchCV(classifier, {"window": [8, 16]}, cv=halves, refit=False).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.5 and search.best_params_["window"] in (8, 16)
    calibrated = CalibratedClassifierCV(classifier, cv=halves).fit(np.array(TEXTS), np.array(LABELS))
    assert calibrated.score(np.array(TEXTS), LABELS) > 0.9


def test_cleanlab_finds_a_wrong_label_with_it(classifier, global_seed):
    classification = pytest.importorskip("cleanlab.classification")
    labels = np.array([label == "feline" for label in LABELS]).astype(int)
    labels[4] = 1 - labels[4]
    options = {"min_examples_per_class": 0, "n_jobs": 1}
    learner = classification.CleanLearning(clone(classifier), seed=0, cv_n_folds=2, find_label_issues_kwargs=options)
    issues = learner.find_label_issues(np.array(TEXTS), labels)
    assert 4 in issues.label_quality.nsmallest(3).index
