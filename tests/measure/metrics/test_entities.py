"""Entity scores equal those of seqeval and conlleval."""

import random
import warnings

import pytest
import seqeval.metrics
from seqeval.scheme import IOB2, IOBES

from bothways.base.errors import InputError
from bothways.measure.metrics import entity_scores, span_scores
from bothways.text.data.tags import Span, spans_to_tags

LABELS = ("LOC", "ORG", "PER")


def taggings(number, prefixes, seed):
    """(gold, predicted): sequences of 1 to 11 tags; predictions are gold with a third of the tags drawn anew."""
    chance = random.Random(seed)

    def draw():
        return "O" if chance.random() < 0.3 else f"{chance.choice(prefixes)}-{chance.choice(LABELS)}"

    gold = [[draw() for _ in range(chance.randint(1, 11))] for _ in range(number)]
    return gold, [[draw() if chance.random() < 1 / 3 else tag for tag in tags] for tags in gold]


def theirs(gold, predicted, **mode):
    """seqeval's report under our names; its shares of nothing are 0 as ours, and its warnings of them are silenced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = seqeval.metrics.classification_report(gold, predicted, output_dict=True, zero_division=0, **mode)
        accuracy = seqeval.metrics.accuracy_score(gold, predicted)
    overall, macro = report.pop("micro avg"), report.pop("macro avg")
    report.pop("weighted avg")
    by_type = {label: {("f1" if k == "f1-score" else k): v for k, v in row.items()} for label, row in report.items()}
    return {
        "precision": overall["precision"],
        "recall": overall["recall"],
        "f1": overall["f1-score"],
        "f1_macro": macro["f1-score"],
        "by_type": by_type,
        "accuracy": accuracy,
    }


def assert_equal(ours, other):
    assert ours.keys() == other.keys() and ours["by_type"].keys() == other["by_type"].keys()
    for label, row in other["by_type"].items():
        assert ours["by_type"][label] == pytest.approx(row)
    numbers = [name for name in other if name != "by_type"]
    assert [ours[name] for name in numbers] == pytest.approx([other[name] for name in numbers])


@pytest.mark.parametrize(("scheme", "prefixes"), [("iob1", "IIIB"), ("iob2", "BI"), ("bioes", "BIES")])
def test_random_taggings_score_as_in_seqeval(scheme, prefixes):
    """Its default mode, which reads all three schemes alike, IOB1 too."""
    gold, predicted = taggings(1000, prefixes, seed=17)
    scores = entity_scores(gold, predicted, scheme)
    assert 0.1 < scores["f1"] < 0.9
    assert_equal(scores, theirs(gold, predicted))


@pytest.mark.parametrize(("scheme", "their_scheme", "prefixes"), [("iob2", IOB2, "BI"), ("bioes", IOBES, "BIES")])
def test_random_taggings_score_strictly_as_in_seqevals_strict_mode(scheme, their_scheme, prefixes):
    gold, predicted = taggings(500, prefixes, seed=19)
    scores = entity_scores(gold, predicted, scheme, strict=True)
    assert scores["f1"] != entity_scores(gold, predicted, scheme)["f1"]
    assert_equal(scores, theirs(gold, predicted, mode="strict", scheme=their_scheme))


def conlleval(gold, predicted):
    """(right tags, right, gold and predicted chunks) by the rules of CoNLL's script: it walks along both taggings at
    once, and counts a chunk when both end it at the same word, having begun it at the same."""
    right_tags = right = num_gold = num_predicted = 0
    for sequence in zip(gold, predicted, strict=True):
        together = False  # a chunk of one type was begun by both at the same word, and both are still in it
        before = ("O", "O")
        for tags in [*zip(*sequence, strict=True), ("O", "O")]:
            ends = [chunk_ends(*pair) for pair in zip(before, tags, strict=True)]
            begins = [chunk_begins(*pair) for pair in zip(before, tags, strict=True)]
            if together and any(ends):
                right += all(ends)
                together = False
            if all(begins) and tags[0][2:] == tags[1][2:]:
                together = True
            num_gold, num_predicted = num_gold + begins[0], num_predicted + begins[1]
            right_tags += tags[0] == tags[1]
            before = tags
        right_tags -= 1  # the word put after the end
    return right_tags, right, num_gold, num_predicted


def chunk_ends(before, tag):
    moves = {"BB", "BO", "IB", "IO", "EE", "EI", "EO", "EB", "SB", "SI", "SE", "SO", "SS", "BS", "IS", "ES"}
    return before[0] + tag[0] in moves or (before != "O" and before[2:] != tag[2:])


def chunk_begins(before, tag):
    moves = {"BB", "IB", "OB", "OI", "EE", "EI", "OE", "EB", "SB", "SI", "SE", "SS", "BS", "IS", "ES", "OS"}
    return before[0] + tag[0] in moves or (tag != "O" and before[2:] != tag[2:])


@pytest.mark.parametrize(("scheme", "prefixes"), [("iob1", "IIIB"), ("iob2", "BI"), ("bioes", "BIES")])
def test_random_taggings_score_as_in_conlleval(scheme, prefixes):
    gold, predicted = taggings(1000, prefixes, seed=23)
    right_tags, right, num_gold, num_predicted = conlleval(gold, predicted)
    scores = entity_scores(gold, predicted, scheme)
    assert scores["accuracy"] == pytest.approx(right_tags / sum(map(len, gold)))
    assert scores["precision"] == pytest.approx(right / num_predicted)
    assert scores["recall"] == pytest.approx(right / num_gold)
    assert scores["f1"] == pytest.approx(2 * right / (num_gold + num_predicted))


def test_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER", "O"]]
    predicted = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "B-PER", "O"]]
    scores = entity_scores(gold, predicted, "iob2")
    assert (scores["precision"], scores["recall"]) == pytest.approx((2 / 4, 2 / 3))
    assert scores["f1"] == pytest.approx(2 * 2 / (4 + 3))
    assert scores["accuracy"] == pytest.approx(5 / 7)
    assert list(scores["by_type"]) == ["LOC", "ORG", "PER"]
    assert scores["by_type"]["PER"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    assert scores["by_type"]["ORG"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert scores["f1_macro"] == pytest.approx((1 + 0 + 0.5) / 3)


def test_schemes_may_differ_between_gold_and_predictions():
    spans = [Span("PER", 0, 2), Span("PER", 2, 3), Span("LOC", 4, 5)]
    gold, predicted = spans_to_tags(spans, 7, "iob1"), spans_to_tags(spans, 7, "bioes")
    assert entity_scores([gold], [predicted], "iob1")["f1"] == 1.0


def test_spans_of_characters_count_once_and_in_their_own_document():
    gold = [("a", "PER", 0, 5), ("a", "LOC", 9, 13), ("b", "PER", 0, 5)]
    predicted = [("a", "PER", 0, 5), ("a", "PER", 0, 5), ("b", "LOC", 9, 13), ("c", "PER", 0, 5)]
    scores = span_scores(gold, predicted)
    assert (scores["precision"], scores["recall"]) == pytest.approx((1 / 3, 1 / 3))


def test_without_entities_the_scores_are_0():
    scores = entity_scores([["O", "O"], []], [["O", "O"], []], "iob2")
    assert scores == {"precision": 0, "recall": 0, "f1": 0, "f1_macro": 0, "by_type": {}, "accuracy": 1}


def test_plain_labels_score_word_by_word():
    scores = entity_scores([["NN", "NN", "VB"]], [["NN", "VB", "VB"]], "plain")
    assert scores["f1"] == scores["accuracy"] == pytest.approx(2 / 3)


def test_other_sequences_or_words_than_the_gold_ones_are_refused():
    with pytest.raises(InputError, match="2 gold .* 1 predicted"):
        entity_scores([["O"], ["O"]], [["O"]], "iob2")
    with pytest.raises(InputError, match="sequence 2: 3 gold .* 2 predicted"):
        entity_scores([["O"], ["O"] * 3], [["O"], ["O"] * 2], "iob2")
