"""Tag schemes: read as by seqeval, written as defined, and illegal tags named."""

import random
import re
import warnings

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB1, IOB2, IOBES, Entities

from bothways.base.errors import InputError
from bothways.text.data.tags import IllegalTag, Span, detect_scheme, find_illegal_tag, spans_to_tags, tags_to_spans

LABELS = ("PER", "LOC", "a-b")
SPAN_SCHEMES = ("iob1", "iob2", "bioes")
PREFIXES = {"iob1": "IB", "iob2": "IB", "bioes": "BIES"}
# Two spans of PER that touch, one of LOC of a word that touches them, and an ORG of three words.
SPANS = [Span("PER", 1, 3), Span("PER", 3, 4), Span("LOC", 4, 5), Span("ORG", 6, 9)]
WRITTEN = {
    "iob1": "O I-PER I-PER B-PER I-LOC O I-ORG I-ORG I-ORG O",
    "iob2": "O B-PER I-PER B-PER B-LOC O B-ORG I-ORG I-ORG O",
    "bioes": "O B-PER E-PER S-PER S-LOC O B-ORG I-ORG E-ORG O",
    "plain": "O PER PER PER LOC O ORG ORG ORG O",
}


def random_tags(chance, prefixes):
    """A sequence of 0 to 12 tags, most of them illegal."""
    words = range(chance.randrange(13))
    return ["O" if chance.random() < 0.25 else f"{chance.choice(prefixes)}-{chance.choice(LABELS[:2])}" for _ in words]


def random_spans(chance, length):
    """Spans in any arrangement, many of them touching."""
    spans, place = [], 0
    while place < length:
        last = min(length, place + chance.randint(1, 3))
        if chance.random() < 0.7:
            spans.append(Span(chance.choice(LABELS), place, last))
        place = last
    return spans


def theirs(tags, scheme=None):
    """seqeval's spans: in its default mode, or in its strict mode for a scheme."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if scheme is None:
            return [Span(label, first, last + 1) for label, first, last in get_entities(tags)]
        return [Span(entity.tag, entity.start, entity.end) for entity in Entities([tags], scheme).entities[0]]


@pytest.mark.parametrize("scheme", WRITTEN)
def test_spans_are_written_as_the_scheme_is_defined(scheme):
    assert " ".join(spans_to_tags(SPANS, 10, scheme)) == WRITTEN[scheme]
    assert " ".join(spans_to_tags(SPANS[::-1], 10, scheme)) == WRITTEN[scheme]  # whatever their order


@pytest.mark.parametrize("scheme", SPAN_SCHEMES)
def test_written_tags_are_legal_and_read_back(scheme):
    chance = random.Random(3)
    for _ in range(500):
        length = chance.randrange(14)
        spans = random_spans(chance, length)
        tags = spans_to_tags(spans, length, scheme)
        assert find_illegal_tag(tags, scheme) is None
        assert tags_to_spans(tags, scheme) == tags_to_spans(tags, scheme, strict=True) == spans
        theirs_strict = theirs(tags, {"iob1": IOB1, "iob2": IOB2, "bioes": IOBES}[scheme])
        assert theirs(tags) == theirs_strict == spans


@pytest.mark.parametrize("scheme", SPAN_SCHEMES)
def test_any_sequence_is_read_as_seqeval_reads_it(scheme):
    chance = random.Random(5)
    for _ in range(1000):
        tags = random_tags(chance, "BIES")
        assert tags_to_spans(tags, scheme) == theirs(tags)


@pytest.mark.parametrize(("scheme", "their_scheme"), [("iob2", IOB2), ("bioes", IOBES)])
def test_the_strict_reading_of_any_sequence_is_seqevals(scheme, their_scheme):
    chance = random.Random(7)
    num_with_spans = 0
    for _ in range(1000):
        tags = random_tags(chance, PREFIXES[scheme])
        spans = tags_to_spans(tags, scheme, strict=True)
        assert spans == theirs(tags, their_scheme)
        num_with_spans += bool(spans)
    assert num_with_spans > 100


@pytest.mark.parametrize(
    ("scheme", "tags", "place", "why"),
    [
        ("iob2", "O I-PER O", 1, "I-PER .*O and O .*IOB2.* B-PER"),
        ("iob2", "I-PER", 0, "I-PER .*the start and the end .*IOB2.* B-PER"),
        ("iob2", "B-PER I-LOC", 1, "I-LOC .*B-PER and the end .*IOB2.* B-LOC"),
        ("iob2", "B-PER E-PER", 1, "E-PER .*B-PER and the end .*IOB2.* I-PER"),
        ("iob1", "O B-PER O", 1, "B-PER .*O and O .*IOB1.* I-PER"),
        ("iob1", "I-LOC B-PER", 1, "B-PER .*I-LOC and the end .*IOB1.* I-PER"),
        ("bioes", "O B-PER O", 1, "B-PER .*O and O .*BIOES.* S-PER"),
        ("bioes", "B-PER I-PER B-LOC E-LOC", 1, "I-PER .*B-PER and B-LOC .*BIOES.* E-PER"),
        ("bioes", "S-PER E-PER", 1, "E-PER .*S-PER and the end .*BIOES.* S-PER"),
        ("iob2", "O I-PER PER", 2, "tag 'PER' is neither O nor "),
        ("iob2", "B-", 0, "tag 'B-' is neither"),
        ("iob1", "O ", 1, "tag '' is neither"),
    ],
)
def test_the_first_illegal_tag_is_named_with_the_expected_one(scheme, tags, place, why):
    illegal = find_illegal_tag(tags.split(" "), scheme)
    assert isinstance(illegal, IllegalTag) and illegal.position == place
    assert re.match(why, illegal.why)


def test_a_sequence_is_legal_if_every_transition_is():
    """Compared with the rules of the schemes, stated tag by tag."""

    def may_follow(scheme, before, tag):
        (prefix, _, label), (earlier, _, earlier_label) = tag.partition("-"), before.partition("-")
        goes_on = label == earlier_label
        if scheme == "iob1":
            return prefix != "B" or goes_on
        if scheme == "iob2":
            return prefix != "I" or goes_on
        return (prefix in "IE" and goes_on) if earlier in ("B", "I") else prefix in "OBS"

    chance = random.Random(13)
    for scheme in SPAN_SCHEMES:
        counts = [0, 0]
        for _ in range(1500):
            tags = random_tags(chance, PREFIXES[scheme])[:4]
            legal = all(may_follow(scheme, *pair) for pair in zip(["O", *tags], [*tags, "O"], strict=True))
            assert (find_illegal_tag(tags, scheme) is None) == legal, (scheme, tags)
            counts[legal] += 1
        assert min(counts) > 100


def test_plain_tags_are_a_span_a_word_and_always_legal():
    assert tags_to_spans(["NN", "NN", "O", "B-x"], "plain") == [Span("NN", 0, 1), Span("NN", 1, 2), Span("B-x", 3, 4)]
    assert tags_to_spans(["NN", "NN"], "plain", strict=True) == [Span("NN", 0, 1), Span("NN", 1, 2)]
    assert find_illegal_tag(["NN", "I-x", ""], "plain") is None


@pytest.mark.parametrize("scheme", WRITTEN)
def test_the_scheme_of_a_corpus_is_detected(scheme):
    sequence = WRITTEN[scheme].split()
    assert detect_scheme([["O"], sequence, []]) == scheme
    # One careless sequence does not hide what the others are; first_illegal is to name it.
    odd = {"iob1": "O B-PER", "iob2": "O I-PER", "bioes": "O I-PER", "plain": "O"}[scheme].split()
    assert detect_scheme([odd, sequence, sequence]) == scheme


def test_ambiguous_tags_are_iob2():
    assert detect_scheme([]) == detect_scheme([["O", "O"]]) == "iob2"
    assert detect_scheme([["O", "B-PER"]]) == "iob2"
    assert detect_scheme([["O", "I-PER"]]) == "iob1"
    assert detect_scheme([["B-PER", "I-PER"], ["PER", "O"]]) == "iob2"  # PER is for first_illegal to name


def test_a_tag_without_a_known_prefix_cannot_be_read_as_a_span():
    with pytest.raises(InputError, match="tag 'X-PER'"):
        tags_to_spans(["O", "X-PER"], "iob2")


@pytest.mark.parametrize(
    "spans",
    [[Span("A", 0, 2), Span("B", 1, 3)], [Span("A", 2, 2)], [Span("A", 4, 6)], [Span("A", -1, 2)]],
)
def test_empty_overlapping_and_out_of_range_spans_raise(spans):
    with pytest.raises(InputError, match="in 5 words"):
        spans_to_tags(spans, 5)
