"""The sentence and the words of a passage that match a query."""

import re

from sentencex import get_sentence_boundaries

from bothways.search.spaces import VectorModel
from bothways.text.retrieval.words import Analyzer, word_pattern

Span = tuple[int, int]
BLOCK = re.compile(r"^[^\S\n]*#.*|\S(?:.|\n(?!\s*\n|\s*#))*", re.MULTILINE)  # a heading, or a paragraph


def matching_sentence(text: str, query: str, analyzer: Analyzer, static: VectorModel) -> Span:
    """The characters of the sentence that is nearest to the query: by the share of its terms that it contains, and the
    cosine of their vectors."""
    spans = sentence_spans(text, analyzer.language)
    spans = [span for span in spans if not text[span[0] :].startswith("#")] or spans  # headings say too little
    if len(spans) < 2:
        return spans[0] if spans else (0, len(text))
    sentences = [text[start:end] for start, end in spans]
    wanted = set(analyzer.terms(query))
    query_H, *vectors = static.embed([query, *sentences])
    shares = [len(wanted.intersection(analyzer.terms(sentence))) / (len(wanted) or 1) for sentence in sentences]
    scores = [share + float(vector @ query_H) for share, vector in zip(shares, vectors, strict=True)]
    return spans[scores.index(max(scores))]


def sentence_spans(text: str, language: str) -> list[Span]:
    """The characters of each sentence. A blank line and a heading end one too."""
    spans = []
    for block in BLOCK.finditer(text):
        for sentence in get_sentence_boundaries(language, block[0]):
            part = block[0][sentence["start_index"] : sentence["end_index"]]
            if part.strip():
                first = block.start() + sentence["start_index"] + len(part) - len(part.lstrip())
                spans.append((first, first + len(part.strip())))
    return spans


def matching_words(text: str, query: str, analyzer: Analyzer) -> list[Span]:
    """The characters of the words of a text that have a stem of the query."""
    wanted = set(analyzer.terms(query))
    return [
        match.span() for match in word_pattern(text).finditer(text) if wanted.intersection(analyzer.terms(match[0]))
    ]
