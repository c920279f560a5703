"""The token store: every sentence of every document, with bounds, and a name for what it holds."""

from itertools import pairwise

import numpy as np
import pytest

from bothways import Tokenizer
from bothways.data.store import build, sentences
from bothways.errors import InputError

DOCUMENTS = ["The cat sat. The dog ran!\nA mat", "  \n\n", "On and on.", "A b"]


@pytest.fixture
def store(tokenizer):
    return build(DOCUMENTS, tokenizer)


def test_sentences_end_with_lines_and_where_a_sentence_does():
    found = [part.strip() for part in sentences("Mr. Smith sat. He ran!\n\nThe end", "en")]
    assert found == ["Mr. Smith sat.", "He ran!", "The end"]


def test_a_store_is_every_sentence_of_every_document_in_order(store, tokenizer):
    expected = ["The cat sat.", "The dog ran!", "A mat", "On and on.", "A b"]
    bounds = store.sentences.tolist()
    assert [store.ids[start:end].tolist() for start, end in pairwise(bounds)] == [
        tokenizer.ids(sentence) for sentence in expected
    ]
    assert store.documents.tolist() == [0, 3, 4, 5]
    assert store.num_documents == 3 and store.num_tokens == sum(len(tokenizer.ids(part)) for part in expected)
    assert bounds[-1] == store.num_tokens


def test_nothing_of_a_text_is_lost_between_sentences(tokenizer):
    text = 'One. Two two!  Three? (four) five...\nsix "seven." eight 9.5 e.g. ten'
    assert build([text], tokenizer).ids.tolist() == tokenizer.ids(text)


def test_a_fingerprint_names_the_text_as_the_tokenizer_reads_it(store, tokenizer):
    assert build(DOCUMENTS, tokenizer).fingerprint == store.fingerprint
    assert len(store.fingerprint) == 16
    others = [
        [*DOCUMENTS[:-1], "A c"],
        DOCUMENTS[::-1],
        [DOCUMENTS[0].replace("\n", "\n\n").replace(". ", ".\n"), *DOCUMENTS[1:]],  # the same tokens and sentences
        [*DOCUMENTS[:-1], "A\nb"],  # the same tokens, a sentence more
        [DOCUMENTS[0], DOCUMENTS[2] + "\n" + DOCUMENTS[3]],  # the same sentences, one document fewer
    ]
    found = [build(texts, tokenizer).fingerprint for texts in others]
    assert [fingerprint == store.fingerprint for fingerprint in found] == [False, False, True, False, False]
    early, late = (build([text], tokenizer).fingerprint for text in ("cat\nsat ran", "cat sat\nran"))
    assert early != late  # the same tokens, as many sentences
    moved = Tokenizer({token: (index + 1) % 97 for token, index in tokenizer.vocab.items()})
    assert build(DOCUMENTS, moved).fingerprint != store.fingerprint


def test_a_corpus_without_words_is_refused(tokenizer):
    with pytest.raises(InputError, match="holds no text"):
        build(["", " \n "], tokenizer)


def test_ids_take_four_bytes_each(store):
    assert store.ids.dtype == np.int32 and store.sentences.dtype == store.documents.dtype == np.int64
