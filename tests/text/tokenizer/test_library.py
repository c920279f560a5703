"""Byte-level BPE and Unigram: ids, offsets, special tokens, windows and files, against other libraries."""

import json
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as PeerTokenizer
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast, RobertaTokenizer

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.tasks.answer.decoding import encode_pairs
from bothways.tasks.offsets import bert_words, char_span
from bothways.text.batch import Batch
from bothways.text.corpus.encode import DocumentEncoder
from bothways.text.corpus.masking import MaskRule
from bothways.text.corpus.sentence_pairs import make_examples, to_batch
from bothways.text.corpus.token_store import build_in_memory, open_or_build
from bothways.training.pretraining.text_data import extend_vocabulary

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
FACETS = {"ids": "ids", "offsets": "offsets", "word_ids": "word_ids", "segment_ids": "type_ids"}
FACETS |= {"sequence_ids": "sequence_ids"}
CLASSES = {"roberta": "RobertaTokenizer", "xlm_roberta": "XLMRobertaTokenizer", "albert": "AlbertTokenizer"}
CLASSES |= dict.fromkeys(("deberta", "big_bird"), "TokenizersBackend")  # their own would not follow our tokenizer.json
SPACES_IN_PLACES = ("deberta", "big_bird")
LIKE_BERT = ("albert", "deberta", "big_bird")  # one token separates two texts


def fixture_lines():
    """Every line of the Unicode files that has something in it, without the numbers before Wikipedia's."""
    for name in ("blns.txt", "NormalizationTest-every-20th.txt", "wikipedia.tsv"):
        for line in (FIXTURES / name).read_text(encoding="utf-8").split("\n"):
            if text := line.split("\t")[-1] if name.endswith(".tsv") else line:
                yield text


@pytest.fixture
def ours(directory):
    return Tokenizer.load(directory)


@pytest.fixture
def saved(ours, tmp_path):
    ours.save(tmp_path / "saved")
    return tmp_path / "saved"


SPACES = "".join(char for char in map(chr, range(0x3001)) if char.isspace() and not "\x1c" <= char <= "\x1f")


def trimmed(text, start, end):
    """A place without the spaces at its ends; behind them all, where there is nothing else."""
    part = text[start:end]
    return (end - len(part.lstrip(SPACES)), start + len(part.rstrip(SPACES))) if part.strip(SPACES) else (end, end)


def places_of(kind, texts, offsets, sequence_ids):
    """transformers' offsets as ours are: it counts the space before a word to its first piece for some kinds."""
    if kind not in SPACES_IN_PLACES:
        return offsets
    return [
        place if index is None else trimmed(texts[index], *place)
        for place, index in zip(offsets, sequence_ids, strict=True)
    ]


def differences(kind, ours, peer, texts):
    """What differs, in words. peer: of transformers, which reads special tokens in a text; so no text has any."""
    problems = []
    for text, pair in zip(texts, [*texts[1:], texts[0]], strict=True):
        mine, theirs = ours.encode(text, pair), peer._tokenizer.encode(text, pair)
        for name, other in FACETS.items():
            expected = getattr(theirs, other)
            if name == "offsets":
                expected = places_of(kind, (text, pair), expected, theirs.sequence_ids)
            if getattr(mine, name) != expected:
                problems.append(f"{name} of {text!r} and {pair!r}")
        named = zip(mine.ids, mine.tokens, theirs.tokens, strict=False)
        if wrong := [(one, two) for index, one, two in named if index != ours.unknown_id and one != two]:
            problems.append(f"tokens of {text!r}: {wrong[0]}")
    return problems


# --- text -> ids, places ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pairs_of_all_fixtures_are_read_as_transformers_reads_what_we_saved(kind, ours, saved):
    peer = AutoTokenizer.from_pretrained(saved)
    assert type(peer).__name__ == CLASSES[kind]
    texts = pair_texts(ours)[sorted(CLASSES).index(kind) % 3 :: 3]  # of the others: soak/
    assert len(texts) > 500
    assert differences(kind, ours, peer, texts) == []


def pair_texts(ours):
    return [text for text in fixture_lines() if not any(special in text for special in ours.special_tokens)]


def test_roberta_s_published_files_are_read_as_transformers_reads_them(roberta):
    peer, ours = RobertaTokenizer.from_pretrained(roberta), Tokenizer.load(roberta)
    assert differences("roberta", ours, peer, list(fixture_lines())[::5]) == []


def test_a_text_alone_is_framed_by_one_token_on_either_side(kind, ours, saved):
    peer = AutoTokenizer.from_pretrained(saved)
    for text in ("The cat sat.", "", " ", "\n", "x" * 3000):
        assert ours.encode(text).ids == peer(text).input_ids
        assert ours.encode(text, "").ids == [ours.cls_id, *ours.ids(text), *[ours.sep_id] * (3 - (kind in LIKE_BERT))]
    assert (ours.backend.num_separators, ours.backend.second_segment_id) == ((1, 1) if kind in LIKE_BERT else (2, 0))


@pytest.mark.parametrize("segments", [1, 2])
def test_transformers_gives_a_model_the_segments_that_it_was_trained_with(albert, tmp_path, segments):
    """Whatever the names in the file that the tokenizer came from."""
    ours = Tokenizer.load(albert)
    ours.backend.config["model_input_names"] = ["input_ids", "attention_mask"]
    ours.save(tmp_path, segments=segments)
    encoded = AutoTokenizer.from_pretrained(tmp_path)("a", "b")
    expected = ours.encode("a", "b").segment_ids if segments == 2 else None
    assert encoded.get("token_type_ids") == expected


def test_a_space_before_a_word_is_not_part_of_its_offsets(roberta):
    encoding = Tokenizer.load(roberta).encode(" the  cat\n sat ")
    text = encoding.ranges[0][0].text
    words = [text[start:end] for start, end in encoding.offsets]
    assert "".join(words) == "thecat\nsat" and not any(word != word.strip(" ") for word in words)


def test_given_words_are_read_as_if_a_space_stood_before_each(kind, ours, directory, saved):
    words = ["The", "cats", "'re", ",", "", "in\u00e9dit", "\u4e2d\u6587", "U.S.-based"]
    options = {"add_prefix_space": True} if kind == "roberta" else {}
    theirs = AutoTokenizer.from_pretrained(saved, **options)(
        words, words[:2], is_split_into_words=True, return_offsets_mapping=True
    )
    mine = ours.encode_words(words, words[:2])
    assert mine.ids == theirs["input_ids"]
    assert mine.word_ids == theirs.word_ids()
    expected = theirs["offset_mapping"]
    if kind == "big_bird":  # there the sign alone is placed on the letter behind the space, which has a token too
        expected = [(0, 0) if token == "\u2581" else place for token, place in zip(mine.tokens, expected, strict=True)]
    assert mine.offsets == expected


# --- special tokens ---------------------------------------------------------------------------------------------------


def test_a_special_token_written_in_a_text_is_text(ours):
    for special in ours.special_tokens:
        for text in (
            special,
            f"a {special} b",
            f"a{special}b",
            f"{special}{special}",
            f" {special}\n",
            f"({special},)",
        ):
            assert not set(ours.ids(text)) & (ours.special_ids - {ours.unknown_id}), text


def test_requested_special_tokens_are_found_as_transformers_finds_them(ours, saved):
    peer = AutoTokenizer.from_pretrained(saved)
    first, mask = ours.tokens[ours.cls_id], ours.tokens[ours.mask_id]
    for text in (
        f"The  {mask} sat{mask}.{first} {mask}",
        mask,
        f"{mask} {mask}",
        f"\n{mask}\nx {first}{ours.special_tokens[0]} ",
    ):
        theirs = peer(text)
        assert ours.encode(text, allow_special=True).ids == theirs.input_ids
        assert ours.encode(text, allow_special=True).word_ids == theirs.word_ids()
        places = ours.encode(text, allow_special=True).offsets
        masks = [place for place, index in zip(places, theirs.input_ids, strict=True) if index == ours.mask_id]
        assert [text[start:end] for start, end in masks] == [mask] * text.count(mask)


def test_a_mask_stands_for_the_space_before_it_too(ours):
    """As the published RoBERTa, XLM-RoBERTa and ALBERT read it: a guessed word brings its own space."""
    mask = ours.tokens[ours.mask_id]
    ids = ours.encode(f"The {mask} sat", allow_special=mask).ids
    assert ids[1:-1] == [*ours.ids("The"), ours.mask_id, *ours.ids("sat", leading_space=True)]


def test_only_the_special_tokens_that_are_named_are_read(ours):
    first, mask = ours.tokens[ours.cls_id], ours.tokens[ours.mask_id]
    ids = ours.encode(f"a {first} {mask} b", allow_special=mask).ids[1:-1]
    assert ours.mask_id in ids and ours.cls_id not in ids
    with pytest.raises(InputError, match=r"special token '\[X\]' "):
        ours.encode("a", allow_special=["[X]"])


def test_lone_surrogates_are_read_as_u_fffd_and_counted(ours):
    assert ours.encode("a\ud800b \udfff").ids == ours.encode("a\ufffdb \ufffd").ids
    assert ours.replaced_surrogates == 2
    assert ours.encode("a\ud800b").offsets == ours.encode("a\ufffdb").offsets
    assert ours.encode_words(["\ud83d", "\ude00"]).ids == ours.encode_words(["\ufffd", "\ufffd"]).ids


@pytest.mark.parametrize(
    "text", ["a" * 30_000, "\u4e2d" * 5000, " " * 5000, "the cat. " * 3000, "\x00\x01\x7f\x85" * 999]
)
def test_a_very_long_or_strange_text_has_places_for_all_its_tokens(ours, text):
    encoding = ours.encode(text, text[:7])
    assert len(encoding.offsets) == len(encoding.ids) == len(encoding.word_ids)
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    assert isinstance(ours.decode(encoding.ids), str)


def test_every_character_has_a_reading(ours):
    for first in range(0, 0x110000 - 0x100, 0x101):
        text = "".join(chr(first + step) for step in range(0, 0x100, 17))
        assert len(ours.encode(text).offsets) == len(ours.encode(text).ids)


def test_decoded_text_is_what_transformers_decodes(ours, saved):
    peer = AutoTokenizer.from_pretrained(saved)
    for text in list(fixture_lines())[::37]:
        ids = ours.encode(text).ids
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, keep_special=True) == peer.decode(ids, clean_up_tokenization_spaces=False)


def test_byte_level_text_comes_back_whole(roberta):
    ours = Tokenizer.load(roberta)
    for text in list(fixture_lines())[::37]:
        assert ours.decode(ours.encode(text).ids) == text


# --- what is built on it ----------------------------------------------------------------------------------------------


def test_windows_of_a_pair_keep_the_frame_and_cover_the_second_text(kind, ours):
    first, second = "Where was the cat?", " ".join(["The cat sat on the mat."] * 60)
    whole = ours.encode(first, second)
    size, own = 109, len(ours.ids(first))
    windows = ours.encode_windows(first, second, size=size, overlap=17)
    head = whole.ids[: 1 + own + ours.backend.num_separators]
    covered = []
    for window in windows:
        _, begin, end = window.ranges[1]
        assert window.ids == [*head, *ours.ids(second)[begin:end], ours.sep_id] and len(window) <= size
        assert window.segment_ids == [0] * len(head) + [ours.backend.second_segment_id] * (len(window) - len(head))
        assert len(window.offsets) == len(window.sequence_ids) == len(window)
        assert window.sequence_ids.count(1) == end - begin
        covered += range(begin, end)
    assert sorted(set(covered)) == list(range(len(ours.ids(second))))
    needed = rf"takes {own} of {own + 40} tokens"
    with pytest.raises(InputError, match=needed):
        ours.encode_windows(first, second, size=own + 40, overlap=1)


def test_questions_about_passages_are_pairs(ours):
    (pair,) = encode_pairs(ours, ["Who sat?"], ["The cat sat."])
    expected = ours.encode("Who sat?", "The cat sat.")
    assert (pair.ids, pair.offsets, pair.segment_ids) == (expected.ids, expected.offsets, expected.segment_ids)


def test_a_batch_has_the_segments_of_its_encodings(ours):
    encodings = [ours.encode("The cat."), ours.encode("The cat", "sat on the mat."), ours.encode("", "")]
    segments = [kind for encoding in encodings for kind in encoding.segment_ids]
    assert Batch.from_encodings(encodings).segment_ids.tolist() == segments


@pytest.mark.parametrize("pairs", ["next", "order", "none"])
def test_pre_training_frames_its_examples_as_texts_are_framed(ours, pairs):
    texts = ["The cat sat. It ran on. " * 9, "A dog and a cow. They met. " * 9, "All were glad. Nobody left. " * 9]
    store, everything = build_in_memory(texts, ours), np.arange(3)
    examples = make_examples(
        store, everything, others=everything, length=31, pairs=pairs, seed=3, epoch=0,
        separators=ours.backend.num_separators,
    )  # fmt: skip
    rows = np.arange(len(examples))
    batch, _ = to_batch(store, examples, rows, ours)
    assert batch.lengths.tolist() == examples.sizes.tolist() and max(examples.sizes) <= 31
    ends = batch.lengths.cumsum(0).tolist()
    for row, end, length in zip(rows, ends, batch.lengths.tolist(), strict=True):
        a, b, c, d = examples.ranges[row]
        framed = ours.build_encoding(
            [(Read(store.ids[a:b].tolist()), 0, b - a), (Read(store.ids[c:d].tolist()), 0, d - c)][: 1 + (d > c)]
        )
        assert batch.input_ids[end - length : end].tolist() == framed.ids
        second = (d - c + 1) * (d > c)
        segments = [0] * (length - second) + [ours.backend.second_segment_id] * second
        assert batch.segment_ids[end - length : end].tolist() == segments


class Read:
    """Ids that were read before."""

    def __init__(self, ids):
        self.ids = ids


def test_whole_words_end_where_the_next_begins(kind, ours):
    rule = MaskRule.from_tokenizer(ours, kind="words")
    sign = {"roberta": "\u0120"}.get(kind, "\u2581")
    assert rule.mask_id == ours.mask_id and len(rule.ordinary_ids) == len(ours) - 5
    for index in rule.ordinary_ids.tolist():
        assert rule.continues_word[index] == (not ours.tokens[index].startswith(sign))


def test_sentences_behind_the_first_are_read_as_if_a_space_stood_before_them(kind, ours):
    document = "The cat sat, no. The dog ran.\nThe cow slept."
    block = DocumentEncoder(ours, "en")([document])
    parts = ["The cat sat, no.", "The dog ran.", "The cow slept."]
    ids = [ours.ids(parts[0]), *(ours.ids(" " + part) for part in parts[1:])]
    assert block.ids.tolist() == [index for part in ids for index in part]
    assert block.sentence_sizes.tolist() == list(map(len, ids))
    if kind == "roberta":
        assert block.ids.tolist() == ours.ids(document.replace("\n", " "))


def test_stores_of_different_tokenizers_are_different_stores(roberta, xlm_roberta, tmp_path):
    texts, stores = ["The cat sat.", "The dog ran."], []
    for tokenizer in (Tokenizer.load(roberta), Tokenizer.load(xlm_roberta), Tokenizer.load(roberta)):
        stores.append(
            open_or_build(
                tmp_path,
                "text",
                lambda: texts,
                tokenizer,
                language="en",
                processes=1,
                drop_duplicates=False,
            )
        )
    assert [built.reused for built in stores] == [False, False, True]


def test_the_same_entries_read_otherwise_are_another_tokenizer(ours, saved):
    changed(saved, lambda content: content.update(normalizer={"type": "Lowercase"}))
    other = Tokenizer.load(saved)
    assert other.vocab == ours.vocab and other.backend.rules != ours.backend.rules


def test_words_for_tags_are_split_at_punctuation_and_have_no_spaces(ours):
    text = "Anna  (of Rome),\n met Paul."
    read = bert_words([ours.encode(text)])
    places = [char_span(read.source, first, last) for first, last in zip(read.first_W, read.last_W, strict=True)]
    words = [text[start:end] for start, end in places]
    assert all(word and word == word.strip() for word in words)
    assert set(words) >= {"Anna", "(", "of", "Rome", "met"}
    assert not any(not word.isalnum() and any(map(str.isalnum, word)) for word in words)


def test_only_word_piece_vocabularies_are_extended(ours):
    with pytest.raises(InputError, match=r"extend_vocab \(5\): only WordPiece"):
        extend_vocabulary(ours, ["the cat"], 5)


# --- filling a mask ---------------------------------------------------------------------------------------------------


@pytest.fixture
def filler(ours, make_model):
    model = make_model(heads={"masked_words": 0}, vocab_size=len(ours), type_vocab_size=2)
    return Predictor(Checkpoint(model=model, tokenizer=ours, model_type="bert"), dtype="float32", device="cpu")


def test_words_that_fill_a_mask_are_put_as_they_are_spelled(ours, filler, saved):
    peer = PreTrainedTokenizerFast.from_pretrained(saved)
    mask = ours.tokens[ours.mask_id]
    (fills,) = filler.fill(f"The {mask} sat", top=len(ours))
    assert len(fills) == len(ours) and abs(sum(fill.score for fill in fills) - 1) < 1e-4
    word = next(token for token in ours.tokens if token[0] in "\u0120\u2581" and token[1:].isalpha() and len(token) > 3)
    piece = next(token for token in ours.tokens if token.isalpha() and token.isascii() and len(token) > 2)
    texts = {fill.token: fill.text for fill in fills}
    for token, text in ((word, f"The {word[1:]} sat"), (piece, f"The{piece} sat")):
        index = ours.vocab[token]
        spelled = peer.decode([index])
        assert texts[spelled] in (text, f"The {spelled.strip()} sat")  # Unigram spells both kinds of entry alike
        theirs = peer.decode([*ours.ids("The"), index, *ours.ids("sat", leading_space=True)])
        assert ours.backend.append_token("The ", token) + " sat" == text
        assert theirs.lower() == text.lower()


def test_a_mask_by_bert_s_name_is_the_model_s_own(ours, filler):
    mask = ours.tokens[ours.mask_id]
    assert filler.fill("The [MASK] sat") == filler.fill(f"The {mask} sat")
    with pytest.raises(InputError, match=rf"no {mask.replace('[', '.').replace(']', '.')} in 'The cat'"):
        filler.fill("The cat")


def test_a_word_is_separated_from_the_text_before_it(ours):
    word = next(token for token in ours.tokens if token[0] in "\u0120\u2581" and token[1:].isalpha())
    put = ours.backend.append_token
    assert put("", word) == word[1:] and put("a", word) == f"a {word[1:]}" and put("a\n", word) == f"a\n{word[1:]}"
    assert put("a  ", "s") == "as"


# --- made, kept -------------------------------------------------------------------------------------------------------


def test_a_copy_in_another_process_reads_the_same(ours):
    texts = ["The cat sat.", "in\u00e9dit \u4e2d\ud800", ""] * 3
    copy = pickle.loads(pickle.dumps(ours))
    assert [copy.encode(text).offsets for text in texts] == [ours.encode(text).offsets for text in texts]
    expected = [encoding.ids for encoding in ours.encode_many(texts, texts[::-1])]
    assert [encoding.ids for encoding in copy.encode_many(texts, texts[::-1], processes=2)] == expected
    assert copy.replaced_surrogates == 9


def test_what_we_save_we_read(ours, saved):
    again = Tokenizer.load(saved)
    assert again.vocab == ours.vocab and again.special_tokens == ours.special_tokens
    assert again.backend.rules == ours.backend.rules
    again.save(saved.parent / "twice")
    for file in saved.iterdir():
        assert file.read_bytes() == (saved.parent / "twice" / file.name).read_bytes()


def test_the_files_are_those_of_the_kind(kind, saved):
    names = {"tokenizer.json", "tokenizer_config.json", *(("vocab.json", "merges.txt") if kind == "roberta" else ())}
    assert {file.name for file in saved.iterdir()} == names
    if kind == "roberta":
        (saved / "tokenizer.json").unlink()
        assert Tokenizer.load(saved).encode("The cat").ids == AutoTokenizer.from_pretrained(saved)("The cat").input_ids


def test_transformers_truncates_to_the_length_of_the_model(ours, tmp_path):
    ours.save(tmp_path, max_length=37)
    assert len(AutoTokenizer.from_pretrained(tmp_path)("the cat " * 99, truncation=True).input_ids) == 37


def changed(saved, change):
    """The tokenizer.json there, changed."""
    file = saved / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def test_truncation_padding_and_dropout_in_a_file_are_ignored(roberta, tmp_path):
    ours = Tokenizer.load(roberta)
    ours.save(tmp_path)
    peer = PeerTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    peer.enable_truncation(3)
    peer.enable_padding(length=64)
    peer.model.dropout = 0.5
    peer.save(str(tmp_path / "tokenizer.json"))
    again = Tokenizer.load(tmp_path)
    for text in list(fixture_lines())[::99]:
        assert again.encode(text).ids == ours.encode(text).ids
    again.save(tmp_path / "again")
    assert PeerTokenizer.from_file(str(tmp_path / "again" / "tokenizer.json")).truncation is None


def test_added_tokens_keep_their_numbers_and_ways(ours, saved):
    """Those for [PAD] to [MASK] are found only on request, others in every text, whichever was added first."""
    peer = PeerTokenizer.from_file(str(saved / "tokenizer.json"))
    peer.add_special_tokens(["<extra>"])
    peer.add_tokens([AddedToken("gene-7", single_word=True), AddedToken("x-ray", lstrip=True)])
    peer.save(str(saved / "tokenizer.json"))
    again, size = Tokenizer.load(saved), len(ours)
    assert (again.vocab["<extra>"], again.vocab["gene-7"], again.vocab["x-ray"]) == (size, size + 1, size + 2)
    assert again.special_tokens == (*ours.special_tokens, "<extra>") and size in again.special_ids
    text = "a gene-7 or gene-77 x-ray <extra> b"
    assert again.encode(text, allow_special=True).ids == peer.encode(text).ids
    ids = again.encode(text).ids
    assert {size, size + 1, size + 2} <= {*ids} and ours.mask_id not in again.ids(ours.special_tokens[4])
    (saved / "special_tokens_map.json").write_text('{"additional_special_tokens": ["[E1]"]}')
    assert Tokenizer.load(saved).ids("[E1]") == [size + 3]
    (saved / "special_tokens_map.json").unlink()
    again.save(saved.parent / "more")
    assert Tokenizer.load(saved.parent / "more").encode(text).ids == ids


def test_special_tokens_of_other_names_are_kept(roberta, tmp_path):
    vocab = json.loads((roberta / "vocab.json").read_text(encoding="utf-8"))
    renamed = {"<mask>": "<gap>", "<pad>": "<void>"}
    (tmp_path / "vocab.json").write_text(
        json.dumps({renamed.get(token, token): index for token, index in vocab.items()})
    )
    (tmp_path / "merges.txt").write_bytes((roberta / "merges.txt").read_bytes())
    named = {"mask_token": {"content": "<gap>", "lstrip": True}, "pad_token": "<void>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    ours = Tokenizer.load(tmp_path)
    assert ours.special_tokens == ("<void>", "<unk>", "<s>", "</s>", "<gap>")
    ours.save(tmp_path / "saved")
    again, peer = Tokenizer.load(tmp_path / "saved"), AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again.special_tokens == ours.special_tokens
    assert (peer.mask_token, peer.pad_token, peer.mask_token_id) == ("<gap>", "<void>", ours.mask_id)
    text = "The <gap> sat"
    assert again.encode(text, allow_special=True).ids == peer(text).input_ids


def test_a_tokenizer_file_alone_is_saved_as_the_kind_that_follows_it(saved, tmp_path):
    (saved / "tokenizer_config.json").unlink()
    changed(saved, lambda content: content.update(normalizer={"type": "Lowercase"}))
    ours = Tokenizer.load(saved / "tokenizer.json")
    ours.save(tmp_path / "new")
    peer = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert ours.encode("The CAT", "Sat").ids == peer("The CAT", "Sat").input_ids == ours.encode("the cat", "sat").ids


# --- the library itself -----------------------------------------------------------------------------------------------


def test_without_the_library_the_extra_is_named(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r"pip install 'bothways\[tokenizers\]'") as error:
        Tokenizer.load(directory)
    assert str(error.value).startswith(str(directory)) and "\n" not in str(error.value)


def test_word_piece_needs_no_library(tmp_path, tokenizer):
    tokenizer.save(tmp_path)
    code = (
        "import sys; sys.modules['tokenizers'] = sys.modules['google'] = None\n"
        f"from bothways import Tokenizer; print(Tokenizer.load({str(tmp_path)!r}).encode('the cat').ids)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == tokenizer.encode("the cat").ids


def test_the_config_of_a_model_has_the_ids_of_bos_and_eos(ours, make_model, tmp_path):
    model = make_model("bert", vocab_size=len(ours))
    checkpoint.save(Checkpoint(model, ours), tmp_path / "model")
    config = AutoConfig.from_pretrained(tmp_path / "model")
    peer = AutoTokenizer.from_pretrained(tmp_path / "model")
    roles = ("bos", "eos", "pad", "cls", "sep", "mask")
    expected = {role: getattr(peer, f"{role}_token_id") for role in roles}
    assert {role: getattr(config, f"{role}_token_id") for role in roles} == expected
    assert None not in expected.values()


def test_texts_are_lower_cased_before_the_normalizer(ours, saved):
    lowered = ours.lowercased()
    assert lowered.ids("THE Cat") == ours.ids("the cat")
    lowered.save(saved)
    assert Tokenizer.load(saved).ids("THE Cat") == lowered.ids("THE Cat")
    assert AutoTokenizer.from_pretrained(saved)("THE Cat", add_special_tokens=False).input_ids == lowered.ids("THE Cat")


def test_arrays_hold_the_ids_of_all_encodings(directory):
    tokenizer = Tokenizer.load(directory)
    texts = [*fixture_lines()][:50]
    ids, starts = tokenizer.encode_arrays(["", *texts])
    rows = [encoding.ids for encoding in tokenizer.encode_many(["", *texts])]
    assert [ids[start:end].tolist() for start, end in pairwise(starts.tolist())] == rows
