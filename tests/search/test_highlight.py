"""The sentence and the words of a passage that match a query."""

from bothways.search.matching import matching_sentence, matching_words, sentence_spans
from bothways.text.retrieval.words import Analyzer
from tests.search.tables import small_static

TEXT = "# Report\nDr. Smith paid the fee. The cat sat\non the mat.\n\nA kitten sat."


def test_sentences_end_at_headings_and_blank_lines_too():
    assert [TEXT[start:end] for start, end in sentence_spans(TEXT, "en")] == [
        "# Report",
        "Dr. Smith paid the fee.",
        "The cat sat\non the mat.",
        "A kitten sat.",
    ]
    assert sentence_spans("", "en") == []


def test_the_sentence_with_the_words_of_the_query():
    start, end = matching_sentence(TEXT, "which fees were paid", Analyzer(), small_static())
    assert TEXT[start:end] == "Dr. Smith paid the fee."
    assert matching_sentence("one", "fee", Analyzer(), small_static()) == (0, 3)
    assert matching_sentence("", "fee", Analyzer(), small_static()) == (0, 0)


def test_words_of_one_stem_match():
    spans = matching_words("Late fees: the fee was PAID.", "paying a fee, paid", Analyzer())
    assert ["Late fees: the fee was PAID."[start:end] for start, end in spans] == ["fees", "fee", "PAID"]
