"""Encodings, windows and decoding with a small vocabulary; every number can be checked by hand."""

import pickle
import string
import subprocess
import sys
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS
from bothways.text.tokenizer.wordpiece import AddedToken, BoundedCache

WORDS = ["cat", "##s", "dog", "the", "do", "don", "can", "é", "\u0130", "\U0001f600"]
CHARACTERS = list(string.digits + string.ascii_letters + string.punctuation)
TOKENS = list(dict.fromkeys([*SPECIAL_TOKENS, *WORDS, *CHARACTERS, *("##" + char for char in CHARACTERS)]))
VOCAB = {token: index for index, token in enumerate(TOKENS)}
ASCII = st.characters(min_codepoint=0, max_codepoint=127)
CLITICS = ["n't", "'s", "'m", "'ve", "'re", "'", " ' "]
PIECES_OF_TEXT = [*CLITICS, *" .,?!-", "cats", "don", "do", "x", "[SEP]", "##s", "\u0130"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(VOCAB)


def numbered_words(count, letters="xy"):
    """Words of one to four pieces, no two neighbours alike."""
    return " ".join(letters[0] + letters[1] * (number % 4) for number in range(count))


# --- one text, two texts --------------------------------------------------------------------------------------------


def test_a_text_is_between_cls_and_sep(tokenizer):
    encoding = tokenizer.encode("The cats, X!")
    assert encoding.tokens == ["[CLS]", "the", "cat", "##s", ",", "x", "!", "[SEP]"]
    assert encoding.ids == [VOCAB[token] for token in encoding.tokens]
    assert encoding.offsets == [(0, 0), (0, 3), (4, 7), (7, 8), (8, 9), (10, 11), (11, 12), (0, 0)]
    assert encoding.word_ids == [None, 0, 1, 1, 2, 3, 4, None]
    assert encoding.segment_ids == [0] * 8
    assert encoding.sequence_ids == [None, 0, 0, 0, 0, 0, 0, None]
    assert len(encoding) == 8


def test_a_pair_has_places_of_its_own_and_segment_one(tokenizer):
    encoding = tokenizer.encode("cats", "the dog")
    assert encoding.tokens == ["[CLS]", "cat", "##s", "[SEP]", "the", "dog", "[SEP]"]
    assert encoding.offsets == [(0, 0), (0, 3), (3, 4), (0, 0), (0, 3), (4, 7), (0, 0)]
    assert encoding.word_ids == [None, 0, 0, None, 0, 1, None]
    assert encoding.segment_ids == [0, 0, 0, 0, 1, 1, 1]
    assert encoding.sequence_ids == [None, 0, 0, None, 1, 1, None]


def test_empty_texts_are_special_tokens_alone(tokenizer):
    assert tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]
    assert tokenizer.encode(" \u200b\n").tokens == ["[CLS]", "[SEP]"]
    assert tokenizer.encode("", "").tokens == ["[CLS]", "[SEP]", "[SEP]"]
    assert tokenizer.encode("", "").segment_ids == [0, 0, 1]


def test_an_unknown_word_is_one_token_over_all_of_it(tokenizer):
    encoding = tokenizer.encode("cat ωω dog")
    assert encoding.tokens == ["[CLS]", "cat", "[UNK]", "dog", "[SEP]"]
    assert encoding.offsets[2] == (4, 6)


def test_special_tokens_in_a_text_are_text_by_default(tokenizer):
    assert tokenizer.encode("cat[SEP]").tokens == ["[CLS]", "cat", "[", "s", "##e", "##p", "]", "[SEP]"]
    allowed = tokenizer.encode("cat[SEP] the [MASK]s", allow_special=True)
    assert allowed.tokens == ["[CLS]", "cat", "[SEP]", "the", "[MASK]", "s", "[SEP]"]
    assert allowed.offsets == [(0, 0), (0, 3), (3, 8), (9, 12), (13, 19), (19, 20), (0, 0)]
    assert allowed.word_ids == [None, 0, 1, 2, 3, 4, None]
    assert tokenizer.encode("cat", "[MASK]", allow_special=True).ids.count(tokenizer.mask_id) == 1
    named = tokenizer.encode("[MASK][SEP]", allow_special=["[MASK]"])
    assert named.tokens == ["[CLS]", "[MASK]", "[", "s", "##e", "##p", "]", "[SEP]"]
    assert named.offsets[1:3] == [(0, 6), (6, 7)]


def test_given_words_are_counted_and_measured_one_by_one(tokenizer):
    encoding = tokenizer.encode_words(["cats", "", "don't", " x"], ["dog", "cats"])
    assert encoding.tokens == ["[CLS]", "cat", "##s", "don", "'", "t", "x", "[SEP]", "dog", "cat", "##s", "[SEP]"]
    assert encoding.word_ids == [None, 0, 0, 2, 2, 2, 3, None, 0, 1, 1, None]
    assert encoding.offsets[1:7] == [(0, 3), (3, 4), (0, 3), (3, 4), (4, 5), (1, 2)]


@pytest.mark.parametrize("false_space", "\x0b\x0c\x1c\x1d\x1e\x1f\x85", ids=ascii)
def test_no_word_is_cut_where_only_python_sees_a_space(tokenizer, false_space):
    encoding = tokenizer.encode(f"c{false_space}ats é{false_space}{false_space}\u0301 {false_space}")
    assert encoding.tokens == ["[CLS]", "cat", "##s", "e", "[SEP]"]
    assert encoding.offsets[1:4] == [(0, 4), (4, 5), (6, 7)]


def test_words_longer_than_the_limit_are_unknown():
    short = Tokenizer(VOCAB, max_word_length=3)
    assert short.encode("cat cats").tokens == ["[CLS]", "cat", "[UNK]", "[SEP]"]


# --- characters that cannot be written ------------------------------------------------------------------------------


def test_lone_surrogates_are_read_as_replacement_characters_and_counted():
    tokenizer = Tokenizer(VOCAB)
    broken, whole = "ca\ud83dts \udc00 \ud800\udbffx", "ca\ufffdts \ufffd \ufffd\ufffdx"
    assert tokenizer.encode(whole).ids == tokenizer.encode(broken).ids
    assert tokenizer.encode(broken).offsets == tokenizer.encode(whole).offsets
    assert tokenizer.replaced_surrogates == 8
    tokenizer.encode("\U0001f600 dog")  # no surrogate, however UTF-16 spells it
    assert tokenizer.replaced_surrogates == 8
    tokenizer.encode_words(["\ud800", "x"])
    tokenizer.encode("x", "\udfff")
    tokenizer.encode("[MASK]\udfff", allow_special=True)
    assert tokenizer.replaced_surrogates == 11


# --- many texts -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_give_the_same_result_as_one():
    texts = [numbered_words(number % 31) + " é\ud800 ωω [SEP]" for number in range(4500)]  # more than two blocks
    pairs = texts[::-1]
    alone, together = Tokenizer(VOCAB), Tokenizer(VOCAB)
    expected = alone.encode_many(texts, pairs)
    encodings = together.encode_many(texts, pairs, processes=2)
    assert [encoding.ids for encoding in encodings] == [encoding.ids for encoding in expected]
    for number in range(0, 4500, 99):
        assert encodings[number].offsets == expected[number].offsets
    assert together.replaced_surrogates == alone.replaced_surrogates == 9000


def test_many_texts_are_encoded_in_order(tokenizer):
    texts = ["cats", "", "the dog"]
    assert [encoding.ids for encoding in tokenizer.encode_many(texts)] == [tokenizer.encode(text).ids for text in texts]
    both = tokenizer.encode_many(texts, ["x", "y", "z"])
    assert both[2].tokens == ["[CLS]", "the", "dog", "[SEP]", "z", "[SEP]"]
    assert tokenizer.encode_many([]) == []


def test_pairs_of_another_number_are_refused(tokenizer):
    with pytest.raises(InputError, match="2 texts .* 1 pairs"):
        tokenizer.encode_many(["cat", "dog"], ["x"])


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=12))
def test_the_cache_does_not_change_ids(texts):
    forgetful, fresh = Tokenizer(VOCAB), Tokenizer(VOCAB)
    forgetful.backend._cache = BoundedCache(forgetful.backend._chunk_ids, limit=1)
    for text in texts * 2:
        assert forgetful.encode(text).ids == fresh.encode(text).ids
        assert len(forgetful.backend._cache) <= 1 and len(forgetful.backend._cache.previous) <= 1


@settings(deadline=None)
@given(st.text(max_size=60))
def test_every_id_has_a_place_in_the_text(text):
    encoding = Tokenizer(VOCAB).encode(text)
    assert len(encoding.offsets) == len(encoding.word_ids) == len(encoding.ids)
    places = encoding.offsets[1:-1]
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert places == sorted(places)


# --- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 400), st.integers(3, 99), st.integers(0, 60))
def test_windows_cover_a_text_in_equal_steps(count, size, overlap):
    tokenizer = Tokenizer(VOCAB)
    text = numbered_words(count)
    whole = tokenizer.encode(text)
    if overlap >= size - 2 and len(whole) > size:
        with pytest.raises(InputError, match=rf"overlap \({overlap}\) .*less than the {size - 2} "):
            tokenizer.encode_windows(text, size=size, overlap=overlap)
        return
    windows = tokenizer.encode_windows(text, size=size, overlap=overlap)
    step = size - 2 - overlap
    covered = []
    for number, window in enumerate(windows):
        first = 1 + number * step
        last = min(first + size - 2, len(whole) - 1)
        assert window.ids == [tokenizer.cls_id, *whole.ids[first:last], tokenizer.sep_id]
        assert window.offsets[1:-1] == whole.offsets[first:last]
        assert window.word_ids[1:-1] == whole.word_ids[first:last]
        covered += range(first, last)
    assert sorted(set(covered)) == list(range(1, len(whole) - 1))
    assert len(covered) == len(whole) - 2 + overlap * (len(windows) - 1)  # no window more than it takes


def test_windows_of_512_and_128_step_by_382(tokenizer):
    windows = tokenizer.encode_windows(" ".join(["cat", "dog", "x", "the", "s"] * 200))
    assert [len(window) for window in windows] == [512, 512, 238]
    assert [window.word_ids[1] for window in windows] == [0, 382, 764]
    assert [window.offsets[1] for window in windows] == [(0, 3), (1224, 1225), (2446, 2447)]


def test_a_text_that_fits_is_one_window_the_encoding_itself(tokenizer):
    text = " ".join(["cat"] * 510)
    assert [window.ids for window in tokenizer.encode_windows(text)] == [tokenizer.encode(text).ids]
    assert len(tokenizer.encode_windows(text, overlap=600)) == 1  # no matter what could not slide
    assert len(tokenizer.encode_windows(" ".join(["cat"] * 500), "dog " * 9)) == 1
    assert len(tokenizer.encode_windows(text + " cat")) == 2


def test_of_a_pair_the_first_text_stays_whole_and_the_second_slides(tokenizer):
    second = numbered_words(150)
    whole = tokenizer.encode("the cats", second)
    windows = tokenizer.encode_windows("the cats", second, size=103, overlap=17)
    step = 103 - 6 - 17
    assert len(windows) == 1 + -(-(len(whole) - 103) // step) > 3
    for number, window in enumerate(windows):
        assert window.tokens[:5] == ["[CLS]", "the", "cat", "##s", "[SEP]"]
        first = 5 + number * step
        assert window.ids[5:-1] == whole.ids[first : first + 97][: len(window) - 6]
        assert window.offsets[5:-1] == whole.offsets[5:-1][number * step : number * step + 97]
        assert window.sequence_ids == [None, 0, 0, 0, None, *[1] * (len(window) - 6), None]
        assert window.segment_ids == [0] * 5 + [1] * (len(window) - 5)
    assert windows[-1].ids[-2] == whole.ids[-2]


def test_a_pair_that_leaves_fewer_than_64_tokens_is_refused(tokenizer):
    second = " ".join(["dog"] * 200)
    assert len(tokenizer.encode_windows(" ".join(["cat"] * 33), second, size=100, overlap=10)) == 4
    with pytest.raises(InputError, match="34 of 100 tokens .* 63 .* 64"):
        tokenizer.encode_windows(" ".join(["cat"] * 34), second, size=100, overlap=10)


@pytest.mark.parametrize("overlap", [-1, 10, 11])
def test_windows_that_would_not_move_on_are_refused(tokenizer, overlap):
    with pytest.raises(InputError, match=rf"overlap \({overlap}\) .*less than the 10 "):
        tokenizer.encode_windows(" ".join(["cat"] * 30), size=12, overlap=overlap)


def test_windows_of_given_words_keep_their_places(tokenizer):
    encoding = tokenizer.encode_words(["cats", "x", "dog"] * 30)
    windows = tokenizer.split_windows(encoding, size=22, overlap=3)
    assert [window.word_ids[1:-1] for window in windows][:2] == [encoding.word_ids[1:21], encoding.word_ids[18:38]]


# --- ids to text ----------------------------------------------------------------------------------------------------


def test_decoding_joins_pieces_and_closes_up_punctuation(tokenizer):
    ids = tokenizer.encode("Don't the cats , do n't they ? I 'm - x !").ids
    assert tokenizer.decode(ids) == "don't the cats, don't they? i'm - x!"
    assert tokenizer.decode(ids, clean_up_spaces=False) == "don ' t the cats , do n ' t they ? i ' m - x !"
    assert tokenizer.decode(tokenizer.encode("cats").ids, keep_special=True) == "[CLS] cats [SEP]"
    assert tokenizer.decode([]) == ""


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.text(ASCII, max_size=40) | st.lists(st.sampled_from(PIECES_OF_TEXT), max_size=15).map("".join))
def test_reading_what_was_decoded_decodes_to_the_same(text):
    for tokenizer in (Tokenizer(VOCAB), Tokenizer(VOCAB, lowercase=False)):
        once = tokenizer.encode(text).ids
        decoded = tokenizer.decode(once)
        again = tokenizer.encode(decoded).ids
        if tokenizer.unknown_id not in (*once, *again):
            assert tokenizer.decode(again) == decoded


# --- the vocabulary -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_refused(token):
    rest = [entry for entry in TOKENS if entry != token]
    with pytest.raises(InputError, match=rf"lacks \[{token[1:-1]}\]"):
        Tokenizer({entry: index for index, entry in enumerate(rest)})


def test_ids_with_a_gap_are_refused():
    with pytest.raises(InputError, match="ids .* 0 to 5"):
        Tokenizer({token: index for index, token in enumerate(SPECIAL_TOKENS)} | {"cat": 6})


def test_a_learned_vocabulary_reads_its_own_texts():
    texts = ["The cats and the dogs, the cat's dog."] * 3
    cased = Tokenizer.learn(texts, size=60, lowercase=False)
    assert cased.unknown_id not in cased.encode(texts[0]).ids
    assert "The" in cased.decode(cased.encode(texts[0]).ids)
    assert Tokenizer.learn(texts, size=60).decode(cased.encode("").ids) == ""
    assert "the" in Tokenizer.learn(texts, size=60).tokens


def test_a_pickled_tokenizer_reads_the_same():
    tokenizer = Tokenizer(VOCAB, lowercase=False, strip_accents=True, split_chinese=False, max_word_length=4)
    copy = pickle.loads(pickle.dumps(tokenizer))
    text = "Cats É 中x cats' abcde"
    assert copy.encode(text).tokens == tokenizer.encode(text).tokens
    assert copy.backend.splitter == tokenizer.backend.splitter


# --- what importing costs -------------------------------------------------------------------------------------------


def run(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_importing_and_encoding_loads_no_torch_and_no_numpy():
    code = (
        "import sys, bothways; bothways.Tokenizer({token: i for i, token in enumerate(sys.argv[1:])}).encode('cats');"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    assert run(code, *SPECIAL_TOKENS) == ["False", "False"]


def test_a_full_vocabulary_is_loaded_without_torch_and_numpy(tmp_path):
    filling = [f"word{number}" for number in range(30522 - len(TOKENS))]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS + filling), encoding="utf-8")
    code = (
        "import sys, bothways; print(len(bothways.Tokenizer.load(sys.argv[1]).tokens),"
        "*(name for name in ('torch', 'numpy', 'tokenizers') if name in sys.modules))"
    )
    assert run(code, str(tmp_path)) == ["30522"]


@pytest.mark.parametrize("processes", [1, 2])
def test_arrays_hold_the_ids_of_all_encodings(tokenizer, processes):
    texts = [
        "",
        "Two cats sat.",
        " ",
        "cats\x0b sat\u2028on \ud800 mats",
        "caf\u00e9 [MASK] ##s",
        "\U0010ffff",
        "a" * 300,
    ]
    ids, starts = tokenizer.encode_arrays(texts, processes=processes)
    encodings = tokenizer.encode_many(texts)

    assert (ids.dtype, starts.dtype) == ("int32", "int64")
    assert starts.tolist() == [0, *accumulate(map(len, encodings))]
    assert ids.tolist() == [index for encoding in encodings for index in encoding.ids]


def test_arrays_of_no_texts(tokenizer):
    ids, starts = tokenizer.encode_arrays([])
    assert ids.tolist() == []
    assert starts.tolist() == [0]


def test_arrays_count_lone_surrogates_in_each_text(tokenizer):
    before = tokenizer.replaced_surrogates
    # One at an end and one at a beginning are no pair.
    tokenizer.encode_arrays(["a \ud83d", "\ude00 b"])
    assert tokenizer.replaced_surrogates == before + 2


def test_arrays_parse_added_tokens(tokenizer):
    vocab = {**tokenizer.vocab, "<e>": len(tokenizer)}
    added = Tokenizer(vocab, added=[AddedToken("<e>")])
    ids, _ = added.encode_arrays(["<e> cats <e>", "cats"])
    assert ids.tolist() == [*added.encode("<e> cats <e>").ids, *added.encode("cats").ids]


def test_arrays_refuse_a_single_string(tokenizer):
    with pytest.raises(InputError, match="single string"):
        tokenizer.encode_arrays("cats")
