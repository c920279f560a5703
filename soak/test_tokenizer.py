"""The tokenizer at full size: every code point and whole data sets, compared with `tokenizers` and `transformers`."""

import itertools
import os
import random
import unicodedata
from pathlib import Path

import pytest
from tokenizers import Tokenizer as PeerTokenizer
from tokenizers import models, normalizers, pre_tokenizers, processors

from bothways import Tokenizer
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
VOCABULARIES = {
    "uncased": ("bert-base-uncased", {"lowercase": True}),
    "cased": ("bert-base-cased", {"lowercase": False}),
    "multilingual": ("bert-base-multilingual-cased", {"lowercase": False}),
}
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
MOVING = [point for point in CODE_POINTS if unicodedata.combining(chr(point))]
LAST_WRITTEN = 0x32000  # behind the last letter of any script; tags and variation selectors stand at TAGS
TAGS = range(0xE0000, 0xE1000)
WRITTEN = [point for point in CODE_POINTS if point < LAST_WRITTEN or point in TAGS]
OPTIONS = list(itertools.product((True, False), (None, True, False), (True, False)))
BATCH = 1000
# Our name for it, and theirs.
FACETS = {
    "ids": "ids",
    "tokens": "tokens",
    "offsets": "offsets",
    "word_ids": "word_ids",
    "segment_ids": "type_ids",
    "sequence_ids": "sequence_ids",
}


def data_file(name):
    file = DATA / name
    if not file.exists():
        pytest.skip(f"{file} is not there; set BOTHWAYS_DATA to the directory of the data sets (docs/DATA.md)")
    return file


def make_peer(vocab, *, lowercase=True, strip_accents=None, split_chinese=True):
    """BERT's pipeline with no added tokens: to it, `[SEP]` in a text is text."""
    peer = PeerTokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    peer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    peer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    peer.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    return peer


def batches(texts):
    texts = iter(texts)
    return iter(lambda: list(itertools.islice(texts, BATCH)), [])


def differences(ours, peer, texts, counts):
    """What differs, in words. A text is a string, or a pair of them. Adds to counts what was compared."""
    found = []
    for batch in batches(texts):
        for text, theirs in zip(batch, peer.encode_batch(batch), strict=True):
            mine = ours.encode(*([text] if isinstance(text, str) else text))
            counts["texts"] += 1
            counts["tokens"] += len(theirs.ids)
            for our_name, their_name in FACETS.items():
                if getattr(mine, our_name) != getattr(theirs, their_name):
                    found.append(f"{our_name} of {ascii(text)[:200]}")
    return found


def report(capsys, name, counts, found):
    with capsys.disabled():
        print(f"\n{name}: {counts['texts']:,} texts, {counts['tokens']:,} tokens, {len(found)} differences")


@pytest.fixture(params=VOCABULARIES)
def both(request):
    directory, options = VOCABULARIES[request.param]
    ours = Tokenizer(Tokenizer.load(data_file(f"vocab/{directory}/vocab.txt")).vocab, **options)
    return ours, make_peer(ours.vocab, **options)


@pytest.fixture
def compare(both, capsys, request):
    def check(texts):
        counts = {"texts": 0, "tokens": 0}
        found = differences(*both, texts, counts)
        report(capsys, request.node.name, counts, found)
        assert found[:20] == []

    return check


def in_contexts(points, points_per_text=32):
    """Each character inside a word, at both ends of one, doubled, and alone."""
    contexts = (f"a{char}b {char}{char}e {char} {char}f" for char in map(chr, points))
    return (" ".join(group) for group in iter(lambda: list(itertools.islice(contexts, points_per_text)), []))


def random_texts(seed, count):
    """Strings from one range of characters each, with some letters and spaces, many of them full of moving marks."""
    draw = random.Random(seed)
    ends = [(0, 0x7F), (0x20, 0x250), (0, 0x3000), (0x300, 0x370), (0x2E80, 0xD7FF), (0xF900, 0xFFFF)]
    staying = [point for point in MOVING if unicodedata.category(chr(point)) != "Mn"]
    pools = (
        [range(first, last) for first, last in ends]
        + [range(0x10000, LAST_WRITTEN), CODE_POINTS]
        + [MOVING, MOVING + staying * 20, staying] * 2
    )

    def draw_character(pool):
        return chr(draw.choice(pool)) if draw.random() < 0.7 else draw.choice("aB .é\u034f")

    for _ in range(count):
        pool = draw.choice(pools)
        size = draw.randint(1, 60)
        yield "".join(draw_character(pool) for _ in range(size))


def wikipedia():
    from pyarrow import parquet

    for file in sorted(data_file("wikipedia-2015-en").glob("validation-*.parquet")):
        for text in parquet.read_table(file, columns=["text"])["text"].to_pylist():
            yield from text.split("\n")


def imdb():
    from pyarrow import parquet

    return parquet.read_table(data_file("imdb/test.parquet"), columns=["text"])["text"].to_pylist()


def sst2():
    for part in ("train", "dev"):
        lines = data_file(f"glue/SST-2/{part}.tsv").read_text(encoding="utf-8").split("\n")
        yield from (line.partition("\t")[0] for line in lines[1:] if line)


def test_every_code_point_is_read_as_tokenizers_reads_it(compare):
    compare(in_contexts(CODE_POINTS))


def test_naughty_strings_are_read_as_tokenizers_reads_them(compare):
    compare(data_file("unicode/blns.txt").read_text(encoding="utf-8").split("\n"))


def test_normalization_rows_are_read_as_tokenizers_reads_them(compare):
    lines = data_file("unicode/NormalizationTest-15.1.0.txt").read_text(encoding="utf-8").split("\n")
    rows = [line.partition("#")[0] for line in lines if line and line[0] not in "#@"]
    columns = [column for row in rows for column in row.split(";")[:5]]
    compare("".join(chr(int(point, 16)) for point in column.split()) for column in columns)


def test_wikipedia_is_read_as_tokenizers_reads_it(compare):
    compare(wikipedia())


def test_pairs_are_read_as_tokenizers_reads_them(compare):
    paragraphs = list(itertools.islice(filter(None, wikipedia()), 5001))
    compare(list(itertools.pairwise(paragraphs)))


def test_reviews_are_read_as_tokenizers_reads_them(compare):
    compare(imdb())


def test_random_strings_are_read_as_tokenizers_reads_them(compare):
    compare(random_texts(seed=1, count=50_000))


@pytest.mark.parametrize("lowercase, strip_accents, split_chinese", OPTIONS)
def test_offsets_equal_those_of_tokenizers_with_every_option(lowercase, strip_accents, split_chinese, capsys):
    # A vocabulary of single characters: nothing is unknown, so nothing that differs can hide.
    chars = [chr(point) for point in WRITTEN if point > 0x20]
    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *chars, *("##" + char for char in chars)])}
    options = {"lowercase": lowercase, "strip_accents": strip_accents, "split_chinese": split_chinese}
    counts = {"texts": 0, "tokens": 0}
    texts = itertools.chain(in_contexts(WRITTEN), random_texts(seed=2, count=10_000))
    found = differences(Tokenizer(vocab, **options), make_peer(vocab, **options), texts, counts)
    report(capsys, options, counts, found)
    assert found[:20] == []


@pytest.mark.parametrize("lowercase, strip_accents, split_chinese", OPTIONS)
def test_the_word_of_every_code_point_is_split_no_further(lowercase, strip_accents, split_chinese):
    splitter = Splitter(lowercase, strip_accents, split_chinese)
    for point in range(0x110000):
        for word in splitter(chr(point)):
            assert splitter(word) == [word]


def test_sentences_decode_as_transformers_decodes_them_and_again_to_the_same(capsys):
    from transformers import BertTokenizer

    ours = Tokenizer.load(data_file("vocab/bert-base-uncased/vocab.txt"))
    peer = BertTokenizer(vocab=dict(ours.vocab))
    known = sentences = 0
    for batch in batches(itertools.chain(sst2(), itertools.islice(wikipedia(), 20_000))):
        rows = [encoding.ids for encoding in ours.encode_many(batch)]
        decoded = [ours.decode(row) for row in rows]
        assert decoded == peer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=True)
        again = [encoding.ids for encoding in ours.encode_many(decoded)]
        sentences += len(batch)
        for text, once, twice in zip(decoded, rows, again, strict=True):
            if ours.unknown_id not in (*once, *twice):
                known += 1
                assert ours.decode(twice) == text
    assert sentences > 80_000
    with capsys.disabled():
        print(f"\n{sentences:,} texts decode alike; {known:,} without [UNK] decode to the same again; 0 differences")
