"""Tags of words as labels of tokens, and scores of tokens as entities at exact characters (a model's: test_predict.py).

The small vocabulary has "the", "cat", "dog" and letters, so most words are several pieces.
"""

import itertools
import random
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.tasks.tag.decoding import Tagset, decode_entities, decode_word_tags, label_windows, viterbi
from bothways.tasks.windows import merge_rows
from bothways.text.data.tags import join_words
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

IOB2 = Tagset.from_names(("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), "iob2")
PLAIN = Tagset.from_names(("ADJ", "NOUN", "PUNCT"), "plain")
SIZE, OVERLAP = 19, 6
# Accents as characters of their own, Hangul taken apart, what BERT drops, what it splits, what moves, half pairs.
NASTY = list("ab .-éßﬁ각中\U0001f600\u0130\ud800\x00\x0b\x85\u00a0\u3000\u00ad\u200b\ufeff\ufe0f")
NASTY += list("\u0301\u0323\u0327\u0345\u05b0\u20e3")
texts = st.text(st.sampled_from(NASTY) | st.characters(), max_size=40)


@pytest.fixture(scope="module", params=["uncased", "cased"])
def any_tokenizer(request):
    continuations = ["##" + char for char in "abes\u1161\u11a8\u0301"]
    pieces = [*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz.-\u0301\u1100", *continuations]
    return Tokenizer({piece: index for index, piece in enumerate(pieces)}, lowercase=request.param == "uncased")


def windows_of(tokenizer, words, *, size=512, overlap=0):
    return tokenizer.encode_windows(join_words(words), size=size, overlap=overlap)


def counted(labelled):
    """(token of the text, label) of every label, in order."""
    return [
        (int(place) - 1 + part.window.ranges[0][1], int(label))
        for part in labelled
        for place, label in zip(part.rows, part.labels, strict=True)
    ]


def one_hot(windows, words, tags, tagset):
    """Scores that are high for the label of each labelled token, and random in every other row."""
    num_tokens = len(windows[0].ranges[0][0].ids)
    scores_SC = np.random.default_rng(5).normal(size=(num_tokens + 2, len(tagset.names))).astype(np.float32)
    for token, label in counted(label_windows(windows, words, tags, tagset)):
        scores_SC[token + 1] = -20
        scores_SC[token + 1, label] = 20
    return scores_SC


# --- tags -> labels -------------------------------------------------------------------------------------------------


def test_labels_are_at_the_first_piece_of_each_of_berts_words(tokenizer):
    words, tags = ["the", "U.S.-based", "cats", "sat"], ["O", "B-LOC", "I-LOC", "O"]
    (window,) = windows_of(tokenizer, words)
    us_based = ["u", ".", "s", ".", "-", "b", "##a", "##s", "##e", "##d"]
    assert window.tokens == ["[CLS]", "the", *us_based, "cat", "##s", "sat", "[SEP]"]
    (labelled,) = label_windows([window], words, tags, IOB2)
    assert labelled.rows.tolist() == [1, 2, 3, 4, 5, 6, 7, 12, 14]
    assert [IOB2.names[label] for label in labelled.labels] == ["O", "B-LOC", *["I-LOC"] * 6, "O"]


def test_a_plain_label_is_repeated_on_each_of_berts_words(tokenizer):
    words, tags = ["the", "U.S.", "cats", "."], ["ADJ", "NOUN", "NOUN", "PUNCT"]
    (labelled,) = label_windows(windows_of(tokenizer, words), words, tags, PLAIN)
    assert labelled.rows.tolist() == [1, 2, 3, 4, 5, 6, 8]
    assert [PLAIN.names[label] for label in labelled.labels] == ["ADJ", *["NOUN"] * 5, "PUNCT"]


@pytest.mark.parametrize(("size", "overlap"), [(19, 6), (20, 0), (21, 18)])
def test_a_label_counts_once_however_many_windows_hold_its_word(size, overlap, tokenizer):
    draw = random.Random(2)
    words = [draw.choice(["the", "cats", "U.S.", "xyz", "dog"]) for _ in range(61)]
    tags = [draw.choice(["O", "B-LOC", "B-PER"]) for _ in words]
    windows = windows_of(tokenizer, words, size=size, overlap=overlap)
    assert len(windows) > 5
    labelled = label_windows(windows, words, tags, IOB2)
    assert [part.window for part in labelled] == windows
    assert counted(labelled) == counted(label_windows(windows_of(tokenizer, words), words, tags, IOB2))


def test_sentences_given_as_one_text_are_read_with_their_neighbours(tokenizer):
    """Document context needs no special code: a document is a text whose words are those of its sentences."""
    sentences = [["the", "cat"], ["dogs", "ran", "."], ["xyz"]]
    words = list(itertools.chain(*sentences))
    (labelled,) = label_windows(windows_of(tokenizer, words), words, ["O", "B-PER", *"OOO", "B-LOC"], IOB2)
    assert labelled.window.tokens.count("[SEP]") == 1
    assert [IOB2.names[label] for label in labelled.labels] == ["O", "B-PER", "O", "O", "O", "B-LOC"]


def test_words_with_spaces_and_words_that_bert_does_not_read_keep_their_tags_apart(tokenizer):
    words, tags = ["a", "", "1 1/2", "\u200b\x00", "b"], ["O", "B-PER", "B-LOC", "B-PER", "I-PER"]
    (labelled,) = label_windows(windows_of(tokenizer, words), words, tags, IOB2)
    assert [IOB2.names[label] for label in labelled.labels] == ["O", "B-LOC", *["I-LOC"] * 3, "B-PER"]


def test_an_entity_begins_with_the_first_of_its_words_that_is_read(tokenizer):
    words, tags = ["\u200b", "cat", "dogs", "\u200b", "ran"], ["B-LOC", "I-LOC", "I-LOC", "B-PER", "O"]
    (labelled,) = label_windows(windows_of(tokenizer, words), words, tags, IOB2)
    names = [IOB2.names[label] for label in labelled.labels]
    assert [name[:2] for name in names].count("B-") == 1 and names[0] == "B-LOC" and names[-1] == "O"
    with pytest.raises(InputError, match="tag 'B_LOC' of 'cat' is unknown"):
        label_windows(windows_of(tokenizer, ["cat"]), ["cat"], ["B_LOC"], IOB2)


def test_a_learned_tagset_has_an_inside_tag_for_every_label():
    tags = ["O", "B-PER", "I-ORG", "B-ORG", "B-a-b"]
    assert Tagset.from_tags(tags, plain=False).names == ("O", *"B-ORG I-ORG B-PER I-PER B-a-b I-a-b".split())
    assert Tagset.from_tags(["NN", ".", "O", "NN"], plain=True) == Tagset((".", "NN", "O"), plain=True)


def test_wrong_tags_are_refused_in_one_line_that_begins_with_their_place(tokenizer):
    windows = windows_of(tokenizer, ["the", "cat"])
    with pytest.raises(InputError, match=r"^dev.txt:7: .*'B-ORG' .*'cat'.* O, B-LOC, I-LOC, B-PER"):
        label_windows(windows, ["the", "cat"], ["O", "B-ORG"], IOB2, where="dev.txt:7")
    with pytest.raises(InputError, match=r"^dev.txt:7: 2 words but 1 tag"):
        label_windows(windows, ["the", "cat"], ["O"], IOB2, where="dev.txt:7")


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_tags_come_back_from_the_scores_they_ask_for(data, any_tokenizer):
    word = texts.filter(lambda text: any_tokenizer.encode(text).ids[1:-1])
    words = data.draw(st.lists(word, min_size=1, max_size=12))
    tags, before = [], "O"
    for _ in words:
        going_on = [name for name in IOB2.names if name[:2] != "I-" or name[2:] == before[2:]]
        before = data.draw(st.sampled_from(going_on))
        tags.append(before)
    size = data.draw(st.sampled_from([19, 23, 512]))
    windows = windows_of(any_tokenizer, words, size=size, overlap=OVERLAP)
    assert decode_word_tags(windows, one_hot(windows, words, tags, IOB2), words, IOB2) == tags
    plain = [data.draw(st.sampled_from(PLAIN.names)) for _ in words]
    assert decode_word_tags(windows, one_hot(windows, words, plain, PLAIN), words, PLAIN) == plain


def test_a_dropped_word_is_outside_unless_an_entity_continues_after_it(tokenizer):
    words, tags = ["\u200b", "a", "\u200b", "b", ""], ["O", "B-PER", "I-PER", "I-PER", "O"]
    windows = windows_of(tokenizer, words)
    assert decode_word_tags(windows, one_hot(windows, words, tags, IOB2), words, IOB2) == tags
    plain = decode_word_tags(windows, one_hot(windows, words, ["NOUN"] * 5, PLAIN), words, PLAIN)
    assert plain == ["O", "NOUN", "O", "NOUN", "O"]
    empty = tokenizer.encode_windows("")
    assert decode_word_tags(empty, np.zeros((2, 5), np.float32), [], IOB2) == []
    assert decode_word_tags(empty, np.zeros((2, 5), np.float32), [""], IOB2) == ["O"]


def test_a_given_word_is_what_the_first_word_in_it_is(tokenizer):
    words = ["a.b", "c", "d-e"]
    scores_SC = scores_of(IOB2.names, "O", "O", "B-PER", "I-PER", "O", "O", "B-LOC")
    windows = windows_of(tokenizer, words)
    assert [entity.text for entity in decode_entities(windows, scores_SC, IOB2)] == ["b c", "e"]
    assert decode_word_tags(windows, scores_SC, words, IOB2) == ["O", "B-PER", "O"]


# --- scores -> entities ---------------------------------------------------------------------------------------------


def scores_of(names, *tags):
    """[CLS], a row a word, [SEP]: the named label at 3, the others at 0."""
    rows = np.zeros((len(tags) + 2, len(names)), np.float32)
    for row, tag in enumerate(tags, 1):
        rows[row, names.index(tag)] = 3
    return rows


def test_an_entity_runs_from_its_first_word_to_its_last_and_scores_their_mean(tokenizer):
    text = "the  cat\tran on."
    scores_SC = scores_of(IOB2.names, "O", "B-PER", "I-PER", "O", "O")
    scores_SC[3, 2:5] = 1.0, 0.0, 5.0  # ran: I-LOC, B-PER, I-PER
    (entity,) = decode_entities(tokenizer.encode_windows(text), scores_SC, IOB2)
    assert (entity.label, entity.text, entity.start, entity.end) == ("PER", "cat\tran", 5, 12)
    first, second = np.exp(3) / (np.exp(3) + 4), np.exp(5) / (np.exp(5) + np.exp(1) + 3)
    assert entity.score == pytest.approx((first + second) / 2, abs=1e-7)


@pytest.mark.parametrize(
    ("names", "tags", "expected"),
    [
        ("O B-X I-X B-Y I-Y", "I-X I-X O I-Y B-Y", ["X:the cat", "Y:on", "Y:mat"]),  # IOB1's way
        ("O I-X I-Y", "I-X I-Y I-Y O I-X", ["X:the", "Y:cat sat", "X:mat"]),
        ("O B-X I-X E-X S-X", "S-X B-X E-X I-X O", ["X:the", "X:cat sat", "X:on"]),
        ("O B-X I-X L-X U-X", "U-X B-X I-X L-X U-X", ["X:the", "X:cat sat on", "X:mat"]),
        ("[PAD] O B-X I-X X", "B-X X I-X [PAD] B-X", ["X:the", "X:sat", "X:mat"]),
        ("O NOUN VERB", "NOUN NOUN O VERB VERB", ["NOUN:the", "NOUN:cat", "VERB:on", "VERB:mat"]),
    ],
)
def test_labels_of_other_models_are_read_in_their_own_scheme(names, tags, expected, tokenizer):
    tagset = Tagset.from_names(names.split())
    scores_SC = scores_of(names.split(), *tags.split())
    entities = decode_entities(tokenizer.encode_windows("the cat sat on mat"), scores_SC, tagset)
    assert [f"{entity.label}:{entity.text}" for entity in entities] == expected


def test_the_training_scheme_decides_how_labels_are_decoded(tokenizer):
    names, windows = ("O", "B-X", "I-X"), tokenizer.encode_windows("the cat")
    scores_SC = scores_of(names, "B-X", "I-X")
    assert [entity.label for entity in decode_entities(windows, scores_SC, Tagset.from_names(names, "plain"))] == [
        "B-X",
        "I-X",
    ]
    for tagset in (Tagset.from_names(names), Tagset.from_names(names, "iob2")):
        assert [(entity.label, entity.text) for entity in decode_entities(windows, scores_SC, tagset)] == [
            ("X", "the cat")
        ]


def test_only_models_trained_on_iob2_have_to_begin_with_b(tokenizer):
    """I-X after O: 3 against 2.9 for B-X."""
    scores_SC = scores_of(IOB2.names, "O", "I-LOC", "I-LOC")
    scores_SC[2, 3] = 2.9  # B-PER
    scores_SC[3, 4] = 2.9  # I-PER
    windows = tokenizer.encode_windows("the cat sat")
    entities_by_scheme = {
        scheme: [
            (entity.label, entity.text)
            for entity in decode_entities(windows, scores_SC, Tagset.from_names(IOB2.names, scheme))
        ]
        for scheme in (None, "iob2")
    }
    assert entities_by_scheme == {None: [("LOC", "cat sat")], "iob2": [("PER", "cat sat")]}


def test_the_viterbi_path_is_the_best_of_all_legal_paths():
    generator = np.random.default_rng(0)
    num_mended = 0
    for num_words in [0, 1, 2, 3, 4, 5] * 8:
        log_WC = generator.normal(size=(num_words, 5))
        best, chosen = -np.inf, ()
        for path in itertools.product(range(5), repeat=num_words):
            names = ["O", *(IOB2.names[label] for label in path)]
            if any(name[:2] == "I-" and name[2:] != before[2:] for before, name in itertools.pairwise(names)):
                continue
            total = sum(log_WC[word, label] for word, label in enumerate(path))
            if total > best:
                best, chosen = total, path
        decoded = viterbi(log_WC, IOB2)
        assert tuple(decoded) == chosen
        num_mended += tuple(log_WC.argmax(1)) != chosen
    assert num_mended > 10


def test_an_entity_across_the_border_of_windows_comes_out_once_and_whole(tokenizer):
    """Whatever the scores of the other window are."""
    names, words = IOB2.names, ["the"] * 40
    windows = windows_of(tokenizer, words, size=SIZE, overlap=OVERLAP)
    for first in range(40):
        tags = ["O"] * 40
        tags[first : first + 5] = ["B-PER", *["I-PER"] * 4][: 40 - first]
        rows = []
        for labelled in label_windows(windows, words, tags, IOB2):
            scores_SC = scores_of(names, *["B-LOC"] * (len(labelled.window) - 2))  # where it does not own the token
            scores_SC[labelled.rows] = 3 * np.eye(5, dtype=np.float32)[labelled.labels]
            rows.append(scores_SC)
        (entity,) = decode_entities(windows, merge_rows(windows, rows), IOB2)
        assert (entity.label, entity.start) == ("PER", 4 * first)
        assert entity.text == join_words(words[first : first + 5])


def test_accents_that_bert_drops_belong_to_the_entity(tokenizer):
    text = "a Jose\u0301\u0327\u200b ran"
    (entity,) = decode_entities(tokenizer.encode_windows(text), scores_of(IOB2.names, "O", "B-PER", *"OOOO"), IOB2)
    assert entity.text == "Jose\u0301\u0327"


def test_accents_that_bert_reads_belong_to_their_own_word():
    cased = Tokenizer({piece: index for index, piece in enumerate([*SPECIAL_TOKENS, "中", "\u0301"])}, lowercase=False)
    windows = cased.encode_windows("中\u0301")
    assert windows[0].tokens == ["[CLS]", "中", "\u0301", "[SEP]"]
    entities = decode_entities(windows, scores_of(IOB2.names, "B-LOC", "B-PER"), IOB2)
    assert [(entity.start, entity.end) for entity in entities] == [(0, 1), (1, 2)]


@settings(max_examples=120, deadline=None)
@given(text=texts, seed=st.integers(0, 99), size=st.sampled_from([19, 512]))
def test_entities_are_slices_of_their_text_in_order_and_apart(text, seed, size, any_tokenizer):
    windows = any_tokenizer.encode_windows(text, size=size, overlap=OVERLAP)
    num_rows = len(any_tokenizer.encode(text))
    for tagset in (IOB2, Tagset.from_names(IOB2.names), PLAIN):
        scores_SC = np.random.default_rng(seed).normal(size=(num_rows, len(tagset.names))).astype(np.float32)
        end = 0
        for entity in decode_entities(windows, scores_SC, tagset):
            assert entity.text == text[entity.start : entity.end] and entity.text
            assert end <= entity.start < entity.end <= len(text)
            assert 0 < entity.score <= 1
            end = entity.end


def test_allowed_transitions_are_computed_once_per_tag_set(make_predictor, monkeypatch):
    names = ["O", *(prefix + str(number) for number in range(33) for prefix in ("B-", "I-"))]
    loaded = make_predictor("bert", {"tokens": len(names)}, labels=tuple(names)).checkpoint
    tagger = Predictor(replace(loaded, metadata={"scheme": "iob2"}), dtype="float32", device="cpu")
    made = []
    plain = Tagset.transitions.func
    counted = cached_property(lambda tagset: made.append(tagset.names) or plain(tagset))
    counted.__set_name__(Tagset, "transitions")
    monkeypatch.setattr(Tagset, "transitions", counted)
    texts = [f"the cat {word} on the mat" for word in "abcdefg"]
    assert len(tagger.tag(texts)) == 7 and made == [tuple(names)]
    tagger.tag_words([text.split() for text in texts])
    assert len(made) == 2


def test_the_steps_of_a_tag_set_are_those_of_the_rule():
    starts_C, steps_CC = IOB2.transitions
    for place, name in enumerate(IOB2.names):
        assert (starts_C[place] == 0) == (not name.startswith("I-"))
        for before, earlier in enumerate(IOB2.names):
            legal = not name.startswith("I-") or earlier[2:] == name[2:]
            assert steps_CC[before, place] == (0 if legal else -np.inf)
