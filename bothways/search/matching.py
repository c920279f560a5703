"""The sentence and the words of a passage that match a query."""

import re

from sentencex import get_sentence_boundaries

from bothways.search.spaces import VectorModel
from bothways.text.retrieval.words import Analyzer, word_pattern

Span = tuple[int, int]
BLOCK = re.compile(r"^[^\S\n]*#.*|\S(?:.|\n(?!\s*\n|\s*#))*", re.MULTILINE)  # a heading, or a paragraph


def matching_sentence(text: str, query: str, analyzer: Analyzer, static: VectorModel) -> Span:
    """The characters of the sentence that is nearest to the query.

    Sentences are compared by the share of the query's terms that they contain, plus the cosine with the query.

    text: of a passage.
    query: what was searched for.
    analyzer: finds terms.
    static: gives the vectors.
    """
    spans = sentence_spans(text, analyzer.language)
    texts = [span for span in spans if not text[span[0] :].startswith("#")]
    spans = texts or spans  # headings say too little
    if not spans:
        return 0, len(text)
    if len(spans) == 1:
        return spans[0]

    sentences = [text[start:end] for start, end in spans]
    query_H, *vectors = static.embed([query, *sentences])
    wanted = set(analyzer.terms(query))

    scores = []
    for sentence, vector_H in zip(sentences, vectors, strict=True):
        share = len(wanted.intersection(analyzer.terms(sentence))) / (len(wanted) or 1)
        scores.append(share + float(vector_H @ query_H))
    return spans[scores.index(max(scores))]


def sentence_spans(text: str, language: str) -> list[Span]:
    """The characters of each sentence. A blank line and a heading end one too."""
    spans = []
    for block in BLOCK.finditer(text):
        for sentence in get_sentence_boundaries(language, block[0]):
            start = sentence["start_index"]
            part = block[0][start : sentence["end_index"]]
            stripped = part.strip()
            if stripped:
                first = block.start() + start + len(part) - len(part.lstrip())
                spans.append((first, first + len(stripped)))
    return spans


def matching_words(text: str, query: str, analyzer: Analyzer) -> list[Span]:
    """The characters of the words of a text that have a stem of the query."""
    wanted = set(analyzer.terms(query))
    spans = []
    for word in word_pattern(text).finditer(text):
        if wanted.intersection(analyzer.terms(word[0])):
            spans.append(word.span())
    return spans
