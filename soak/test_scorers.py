"""Scorers at full size: published SQuAD predictions, 10,000 taggings against seqeval, whole tagged corpora."""

import os
import random
import warnings
from pathlib import Path

import pytest
import seqeval.metrics.sequence_labeling as seqeval

from bothways.evaluation.evaluate import score_file
from bothways.measure.metrics import entity_scores
from bothways.settings import Evaluate
from bothways.text.data.examples import read_tagged
from bothways.text.data.tags import detect_scheme, find_illegal_tag, spans_to_tags, tags_to_spans

pytestmark = pytest.mark.timeout(600)
DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
NUM_TAGGINGS = 10_000


@pytest.mark.parametrize(
    ("version", "name", "exact_match", "f1", "missing"),
    [
        ("1.1", "bert-ensemble", 86.21, 92.20, 0),
        ("1.1", "logistic-regression", 40.14, 50.98, 13),
        ("2.0", "bert-single", 78.74, 81.78, 0),
        ("2.0", "nlnet", 75.83, 78.78, 0),
    ],
)
def test_published_predictions_have_their_published_scores(version, name, exact_match, f1, missing):
    squad = DATA / "squad"
    predictions = squad / "published-predictions" / f"v{version}-{name}.json"
    found = score_file(Evaluate(model=squad / f"dev-v{version}.json", predictions=predictions))
    print(name, found)
    assert (round(found["exact_match"], 2), round(found["f1"], 2)) == (exact_match, f1)
    assert found["missing"] == missing
    assert ("NoAns_f1" in found) == (version == "2.0")


@pytest.mark.parametrize(("scheme", "prefixes"), [("iob1", "IIIB"), ("iob2", "BI"), ("bioes", "BIES")])
def test_10_000_random_taggings_score_as_in_seqeval_one_by_one_and_together(scheme, prefixes):
    """Legal gold tags and any predicted ones; seqeval in its default mode, which takes no scheme."""
    chance = random.Random(37)

    def tagging(length):
        return [chance.choice(["O", *(f"{a}-{b}" for a in prefixes for b in ("PER", "LOC"))]) for _ in range(length)]

    predicted = [tagging(chance.randint(1, 15)) for _ in range(NUM_TAGGINGS)]
    noisy = [[tag if chance.random() < 0.7 else tagging(1)[0] for tag in tags] for tags in predicted]
    gold = [spans_to_tags(tags_to_spans(tags, scheme), len(tags), scheme) for tags in noisy]
    assert all(find_illegal_tag(tags, scheme) is None for tags in gold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval warns of shares of nothing
        for right, found in [(gold, predicted), *(([a], [b]) for a, b in zip(gold, predicted, strict=True))]:
            ours = entity_scores(right, found, scheme)
            theirs = seqeval.precision_recall_fscore_support(right, found, average="micro", zero_division=0)
            assert (ours["precision"], ours["recall"], ours["f1"]) == pytest.approx(theirs[:3])
            assert ours["accuracy"] == pytest.approx(seqeval.accuracy_score(right, found))


@pytest.mark.parametrize(
    ("file", "scheme", "entities"),
    [
        ("conll2003/eng.train", "iob1", 23_499),
        ("conll2003/eng.testa", "iob1", 5_942),
        ("conll2003/eng.testb", "iob1", 5_648),
        ("scientific/ncbi-disease/train.txt", "iob2", 5_134),
    ],
)
def test_the_scheme_is_detected_and_entities_survive_conversions(file, scheme, entities):
    corpus = [sentence.tags for sentence in read_tagged(DATA / file)]
    assert detect_scheme(corpus) == scheme
    assert not any(find_illegal_tag(tags, scheme) for tags in corpus)
    assert sum(len(tags_to_spans(tags, scheme)) for tags in corpus) == entities
    for other in ("iob1", "iob2", "bioes"):
        written = [spans_to_tags(tags_to_spans(tags, scheme), len(tags), other) for tags in corpus]
        assert detect_scheme(written) == other
        assert entity_scores(corpus, written, other)["f1"] == 1.0
