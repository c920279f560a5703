"""Word search: terms, inverted lists, BM25."""

import math
import unicodedata

import numpy as np
import pytest

from bothways.search.matching import matching_words
from bothways.text.retrieval.bm25 import ENOUGH_PASSAGES, K1, B, Bm25, InvertedList, invert
from bothways.text.retrieval.words import Analyzer, background_shares, marks

DOCUMENTS = [["fee", "late", "fee"], ["invoice"], [], ["late", "invoice", "fee", "fee", "fee", "paid"]]


def slow_bm25(query: list[str], documents: list[list[str]]) -> list[float]:
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for term in query:
            frequency = sum(term in other for other in documents)
            weight = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            count = document.count(term)
            score += weight * count / (count + K1 * (1 - B + B * len(document) / mean))
        scores.append(score)
    return scores


def test_terms_are_lower_case_stems_without_stop_words():
    assert Analyzer("en").terms("The Invoices were not PAID, late_fees: 1,234!") == [
        "invoic", "were", "paid", "late", "fee", "1", "234"
    ]  # fmt: skip
    assert Analyzer("de").terms("Die Rechnungen") == ["die", "rechnung"]
    assert Analyzer("ja").terms("納品書 ABC") == ["納品書", "abc"]


def test_scores_equal_the_formula():
    lists, lengths = invert(DOCUMENTS)
    bm25 = Bm25(lengths, np.ones(4, bool))
    for query in (["fee"], ["late", "fee", "fee"], ["unknown"], []):
        scores = bm25.scores(query, {term: [one] for term, one in lists.items()})
        np.testing.assert_allclose(scores, slow_bm25(query, DOCUMENTS), rtol=1e-5)


def test_removed_passages_count_for_nothing():
    """The scores are those of an index that never had them."""
    lists, lengths = invert(DOCUMENTS)
    scores = Bm25(lengths, np.array([True, False, True, True])).scores(
        ["invoice", "fee"], {term: [one] for term, one in lists.items()}
    )
    kept = slow_bm25(["invoice", "fee"], [DOCUMENTS[0], DOCUMENTS[2], DOCUMENTS[3]])
    np.testing.assert_allclose(scores, [kept[0], 0, *kept[1:]], rtol=1e-5)


def test_batches_of_passages_score_as_one():
    whole, lengths = invert(DOCUMENTS)
    first, second = invert(DOCUMENTS[:1])[0], invert(DOCUMENTS[1:], 1)[0]
    parts: dict[str, list[InvertedList]] = {}
    for lists in (first, second):
        for term, one in lists.items():
            parts.setdefault(term, []).append(one)
    bm25 = Bm25(lengths, np.ones(4, bool))
    query = ["fee", "invoice", "late"]
    assert (bm25.scores(query, parts) == bm25.scores(query, {term: [one] for term, one in whole.items()})).all()


def test_counts_saturate():
    lists, lengths = invert([["x"] * 1000])
    assert lists["x"].counts.tolist() == [255]
    assert lengths.tolist() == [1000]


@pytest.mark.parametrize("number", [1, 5, 999])
def test_few_passages_are_weighed_as_if_among_others(number):
    """The weights are those of ENOUGH_PASSAGES passages, of which the others have a term as often as its share says."""
    bm25 = Bm25(np.ones(number, np.uint32), np.ones(number, bool), {"often": 0.25})
    own = [InvertedList(np.array([0], np.uint32), np.array([1], np.uint8))]

    def weight(frequency):
        return pytest.approx(math.log(1 + (ENOUGH_PASSAGES - frequency + 0.5) / (frequency + 0.5)))

    assert bm25.idf("often", own) == weight(1 + 0.25 * (ENOUGH_PASSAGES - number))
    assert bm25.idf("seldom", own) == weight(1)
    assert bm25.idf("never", []) == weight(0)


def test_passages_enough_are_weighed_by_themselves():
    number = ENOUGH_PASSAGES
    own = [InvertedList(np.arange(7, dtype=np.uint32), np.ones(7, np.uint8))]
    plain = Bm25(np.ones(number, np.uint32), np.ones(number, bool))
    assert Bm25(np.ones(number, np.uint32), np.ones(number, bool), {"x": 0.9}).idf("x", own) == plain.idf("x", own)


def test_shares_of_other_texts_are_of_english_stems():
    shares = background_shares("en")
    assert 0.002 <= min(shares.values()) <= max(shares.values()) < 1
    analyzer = Analyzer("en")
    when, collected, rubbish = analyzer.terms("when collected rubbish")
    assert shares[when] > 5 * shares[collected] > 5 * shares.get(rubbish, 0.0)
    assert background_shares("de") == {}


def test_the_heading_counts_as_words_of_the_passage_once():
    analyzer = Analyzer("en")
    assert analyzer.passage_terms("# Late fees\n\nTwo per cent.", "Late fees") == ["late", "fee", "two", "per", "cent"]
    assert analyzer.passage_terms("Two per cent.", "Late fees") == ["late", "fee", "two", "per", "cent"]
    assert analyzer.passage_terms("Late payment", "Late fees") == ["late", "fee", "late", "payment"]
    assert analyzer.passage_terms("Two per cent.", "") == ["two", "per", "cent"]


@pytest.mark.parametrize("documents", [[], [[]]])
def test_nothing_to_invert(documents):
    lists, lengths = invert(documents)
    assert not lists
    assert len(lengths) == len(documents)


# --- Unicode ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize(
    "word", ["café", "Ångström", "naïve", "Việt", "हिन्दी", "தமிழ்", "ภาษาไทย", "한국어", "ﬁle", "ｆｅｅ", "क़लम", "ガム"]
)
def test_a_word_is_one_term_in_every_form_of_unicode(word, form):
    for language in ("en", "hi", "ta", "ja"):
        terms = Analyzer(language).terms(f"({unicodedata.normalize(form, word)})")
        assert len(terms) == 1
        assert terms == Analyzer(language).terms(word.upper() if word.isascii() else word)


@pytest.mark.parametrize(("tea", "knife"), [("चाय", "चाकू"), ("தேநீர்", "தேள்"), ("ชา", "มีดชุด"), ("ច", "ចាន")])
def test_words_that_share_letters_only_are_others(tea, knife):
    analyzer = Analyzer("en")
    assert not {*analyzer.terms(tea)} & {*analyzer.terms(knife)}
    assert matching_words(knife, tea, analyzer) == []


def test_what_is_not_seen_in_a_word_does_not_part_it():
    terms = Analyzer("en").terms
    assert terms("in\u00advoice") == terms("in\u2060voice") == terms("invoice")
    assert terms("क्\u200dष") == terms("क्ष")
    assert terms("1\ufe0f\u20e3") == terms("1") and terms("葛\U000e0100") == terms("葛")
    assert terms("the\u00ad \u0301 \u200d") == []


def test_highlighted_words_keep_their_place_in_the_text():
    text = unicodedata.normalize("NFD", "Le café, un cafard.")
    assert [text[start:end] for start, end in matching_words(text, "CAFÉ", Analyzer("fr"))] == ["cafe\u0301"]


def test_the_blocks_of_marks_hold_every_mark_of_unicode():
    assert {*marks()} == {c for c in map(chr, range(0x110000)) if unicodedata.category(c) in ("Mn", "Mc")}
