"""Tokenizer files other than BERT's: SentencePiece models, and one-line errors for bad or foreign files."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer as PeerTokenizer
from tokenizers import models, pre_tokenizers
from transformers import AlbertTokenizer, AutoTokenizer, XLMRobertaTokenizer
from transformers.convert_slow_tokenizer import BigBirdConverter, DebertaConverter, DebertaV2Converter

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS

ALBERT_SPECIALS = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
BIG_BIRD = {"tokenizer_class": "BigBirdTokenizer"}
SUPPORTED = "AlbertTokenizer, XLMRobertaTokenizer, DebertaV2Tokenizer, BigBirdTokenizer"
FOLDED = "\ufb01sh \uff21\u3000b\u0001c cafe\u0301 \u00bd ``It''s\u00e9"


def error_message(path):
    """The error message without its path; one line."""
    with pytest.raises(InputError) as error:
        Tokenizer.load(path)
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message.removeprefix(str(path))


# --- SentencePiece ----------------------------------------------------------------------------------------------------


def charsmap(file):
    """The compiled normalization, by transformers' copy of the file's description."""
    from transformers.utils import sentencepiece_model_pb2_new as description

    model = description.ModelProto.FromString(file.read_bytes())
    return model.normalizer_spec.precompiled_charsmap, [(one.piece, one.score) for one in model.pieces]


@pytest.mark.parametrize("cased", [True, False])
@pytest.mark.parametrize("accents", [True, False])
def test_albert_s_file_is_read_as_transformers_pipeline_of_its_pieces(albert, tmp_path, paragraphs, cased, accents):
    shutil.copy(albert / "spiece.model", tmp_path)
    options = {"do_lower_case": not cased, "keep_accents": accents}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    folding, pieces = charsmap(albert / "spiece.model")
    pieces = [(piece, score - 100 * (piece[-1] == "," and piece[:-1][-1:].isdigit())) for piece, score in pieces]
    peer = AlbertTokenizer(vocab=pieces, _spm_precompiled_charsmap=folding, **options)
    ours = Tokenizer.load(tmp_path)
    for text in (*paragraphs[150:200], FOLDED):
        assert ours.encode(text, "a b").ids == peer(text, "a b").input_ids
        assert ours.encode(text).offsets == peer(text, return_offsets_mapping=True)["offset_mapping"]
    assert (ours.encode("FISH \u00e9").ids == ours.encode("fish \u00e9").ids) is not cased


def test_xlm_roberta_s_file_is_read_as_transformers_pipeline_of_its_pieces(xlm_roberta, paragraphs):
    folding, pieces = charsmap(xlm_roberta / "sentencepiece.bpe.model")
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces[3:], ("<mask>", 0.0)]
    peer = XLMRobertaTokenizer(vocab=vocab, _spm_precompiled_charsmap=folding)
    ours = Tokenizer.load(xlm_roberta / "sentencepiece.bpe.model")
    assert len(ours) == len(pieces) + 2 and ours.mask_id == len(pieces) + 1
    for text in (*paragraphs[150:200], FOLDED):
        assert ours.encode(text, "a b").ids == peer(text, "a b").input_ids
        assert ours.encode(text).offsets == peer(text, return_offsets_mapping=True)["offset_mapping"]


@pytest.mark.parametrize("cased", [True, False])
@pytest.mark.parametrize("split", [True, False])
def test_deberta_s_file_is_read_as_transformers_converts_it(deberta, tmp_path, paragraphs, cased, split):
    options = {"do_lower_case": not cased, "split_by_punct": split}
    shutil.copy(deberta / "spm.model", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    ours = Tokenizer.load(tmp_path)
    _, pieces = charsmap(deberta / "spm.model")
    assert len(ours) == len(pieces) + 1 and ours.mask_id == len(pieces)
    same_as_converted(ours, DebertaV2Converter, deberta / "spm.model", options, paragraphs)
    assert (ours.encode("CATS").ids == ours.encode("cats").ids) is not cased


def test_big_bird_s_file_is_read_as_transformers_converts_it(big_bird, paragraphs):
    ours = Tokenizer.load(big_bird)
    same_as_converted(ours, BigBirdConverter, big_bird / "spiece.model", {}, paragraphs)
    assert ours.tokens[ours.mask_id] == "[MASK]" and ours.encode("a", "b").segment_ids == [0, 0, 0, 1, 1]


def same_as_converted(ours, converter, file, options, paragraphs):
    """transformers' classes for these files fold nothing; what it converts older checkpoints with does."""
    ids = {token: index for index, token in enumerate(ours.tokens)}
    described = SimpleNamespace(vocab_file=str(file), add_prefix_space=True, convert_tokens_to_ids=ids.get, **options)
    peer = converter(described).converted()
    for text in (*paragraphs[150:200], FOLDED, "  two  spaces and a line\n\tno more ", "..., (a)-b", " ", ""):
        mine, theirs = ours.encode(text, "a b"), peer.encode(text, "a b")
        assert (mine.ids, mine.segment_ids) == (theirs.ids, theirs.type_ids), text


def test_deberta_s_first_form_is_read_as_transformers_converts_it(roberta, tmp_path, paragraphs):
    """vocab.json and merges.txt under BERT's special tokens: one separator between two texts, and segments."""
    names = {"<s>": "[CLS]", "</s>": "[SEP]", "<pad>": "[PAD]", "<unk>": "[UNK]", "<mask>": "[MASK]"}
    entries = json.loads((roberta / "vocab.json").read_text(encoding="utf-8")).items()
    vocab = {names.get(token, token): index for token, index in entries}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    shutil.copy(roberta / "merges.txt", tmp_path)
    merges = [tuple(line.split(" ")) for line in (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]]
    described = SimpleNamespace(
        encoder=vocab, bpe_ranks=dict.fromkeys(merges), add_prefix_space=False, convert_tokens_to_ids=vocab.get
    )
    peer, ours = DebertaConverter(described).converted(), Tokenizer.load(tmp_path)
    ours.save(tmp_path / "saved")
    for tokenizer in (ours, Tokenizer.load(tmp_path / "saved")):
        for text in (*paragraphs[150:200], " two  spaces\n", ""):
            mine, theirs = tokenizer.encode(text, "a b"), peer.encode(text, "a b")
            assert (mine.ids, mine.segment_ids) == (theirs.ids, theirs.type_ids), text
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again("The cat", "sat").input_ids == ours.encode("The cat", "sat").ids
    assert ours.tokens[ours.mask_id] == "[MASK]"


def test_a_configured_class_decides_where_entries_fit_two(roberta, tmp_path, make_sentencepiece):
    """SentencePiece adds <s> and </s> unasked; a RoBERTa may call its tokens as BERT does."""
    pieces = [(token, 0.0) for token in (*ALBERT_SPECIALS, "<s>", "</s>")] + [
        ("\u2581", -3.0),
        ("a", -4.0),
        ("A", -4.0),
    ]
    make_sentencepiece(tmp_path / "spiece.model", pieces, controls=(*ALBERT_SPECIALS, "<s>", "</s>"))
    for settings, folds in (({}, True), ({"tokenizer_class": "AlbertTokenizer"}, True), (BIG_BIRD, False)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        assert Tokenizer.load(tmp_path).encode("A").tokens[1:-1] == (["\u2581", "a" if folds else "A"])

    names = {"<s>": "[CLS]", "</s>": "[SEP]"}
    entries = json.loads((roberta / "vocab.json").read_text(encoding="utf-8")).items()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/vocab.json").write_text(json.dumps({names.get(token, token): index for token, index in entries}))
    shutil.copy(roberta / "merges.txt", tmp_path / "other")
    config = {"tokenizer_class": "RobertaTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (tmp_path / "other/tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    encoding = Tokenizer.load(tmp_path / "other").encode("a", "b")
    assert [token for token in encoding.tokens if token[0] == "["] == ["[CLS]", "[SEP]", "[SEP]", "[SEP]"]
    assert not any(encoding.segment_ids)


def test_a_number_with_its_comma_is_two_pieces_to_albert(tmp_path, make_sentencepiece):
    scores = {"\u2581": -3.0, "1": -5.0, ",": -5.0, "1,": -1.0, "a,": -1.0, "a": -5.0}
    pieces = [(special, 0.0) for special in ALBERT_SPECIALS] + list(scores.items())
    make_sentencepiece(tmp_path / "spiece.model", pieces, controls=ALBERT_SPECIALS)
    assert Tokenizer.load(tmp_path).encode("11, a,").tokens[1:-1] == ["\u2581", "1", "1", ",", "\u2581", "a,"]


def test_symbols_that_a_user_defined_are_pieces_within_words(tmp_path, make_sentencepiece):
    """As in SentencePiece, and in the tokenizer.json that is published for ALBERT: no word begins behind them."""
    scores = {"\u2581": -3.0, "(": 0.0, "a": -5.0, "\u2581a": -4.0}
    pieces = [(special, 0.0) for special in ALBERT_SPECIALS] + list(scores.items())
    make_sentencepiece(tmp_path / "spiece.model", pieces, controls=ALBERT_SPECIALS, user_defined=["("])
    assert Tokenizer.load(tmp_path).encode("a(a").tokens[1:-1] == ["\u2581a", "(", "a"]


def test_added_tokens_of_older_files_are_read(albert, tmp_path):
    shutil.copy(albert / "spiece.model", tmp_path)
    size = len(Tokenizer.load(tmp_path))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": 4, "gene-7": size}))
    ours = Tokenizer.load(tmp_path)
    assert len(ours) == size + 1 and ours.encode("a gene-7b").ids.count(size) == 1


def other_pieces(kind):
    letters = [("\u2581", -2.0), ("a", -3.0)]
    first = {
        "t5": ["<pad>", "</s>", "<unk>"], "llama": ["<unk>", "<s>", "</s>", "<mask>"],
        "xlnet": ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"],
    }[kind]  # fmt: skip
    return [(piece, 0.0) for piece in first] + letters


@pytest.mark.parametrize("kind", ["t5", "llama", "xlnet"])
def test_sentencepiece_models_of_other_families_are_refused(kind, tmp_path, make_sentencepiece):
    make_sentencepiece(tmp_path / "spiece.model", other_pieces(kind))
    message = error_message(tmp_path / "spiece.model")
    assert message.startswith(": this model ") and message.endswith(f" {SUPPORTED}")


def test_a_family_that_shares_the_file_s_name_is_refused_by_its_class(xlm_roberta, tmp_path):
    file = tmp_path / "sentencepiece.bpe.model"
    shutil.copy(xlm_roberta / file.name, file)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CamembertTokenizer"}')
    message = error_message(file)
    assert message.startswith(": CamembertTokenizer ") and SUPPORTED in message
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizerFast"}')
    assert Tokenizer.load(tmp_path).special_tokens[0] == "<pad>"


@pytest.mark.parametrize("place", ["tokenizer_config.json", "config.json"])
def test_a_class_that_reads_a_vocabulary_in_another_way_is_refused(place, roberta, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a"]))
    for name in ("BertTokenizer", "ElectraTokenizerFast", "PreTrainedTokenizerFast", None):
        (tmp_path / place).write_text(json.dumps({"tokenizer_class": name}))
        assert len(Tokenizer.load(tmp_path)) == 6
    (tmp_path / place).write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    assert error_message(tmp_path / "vocab.txt").startswith(": a vocabulary of BertJapaneseTokenizer ")
    shutil.copytree(roberta, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer_config.json").unlink(missing_ok=True)
    (tmp_path / place).write_text('{"tokenizer_class": "HerbertTokenizerFast"}')
    assert error_message(tmp_path / "vocab.json").startswith(": a vocabulary of HerbertTokenizerFast ")


def test_words_that_are_divided_by_another_library_are_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a"]))
    (tmp_path / "tokenizer_config.json").write_text('{"word_tokenizer_type": "mecab"}')
    assert error_message(tmp_path / "vocab.txt").startswith(": a vocabulary of word_tokenizer_type ")


def test_tokens_added_beside_a_vocabulary_extend_it_and_gaps_are_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a"]))
    (tmp_path / "added_tokens.json").write_text('{"a": 5, "[MASK]": 4}')
    assert len(Tokenizer.load(tmp_path)) == 6
    (tmp_path / "added_tokens.json").write_text('{"[E1]": 6}')
    assert Tokenizer.load(tmp_path).ids("a[e1]") == [5, 6]
    (tmp_path / "added_tokens.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"7": {"content": "[E2]"}}}')
    with pytest.raises(InputError, match=r"ids must be 0 to 6"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["RobertaTokenizer", "LongformerTokenizerFast", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("space", [True, False, None])
def test_the_space_before_a_text_is_that_of_the_config(roberta, tmp_path, name, space):
    for stored in (True, False):
        directory = tmp_path / str(stored)
        Tokenizer.load(roberta).save(directory)
        content = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
        content["pre_tokenizer"]["add_prefix_space"] = stored
        (directory / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        config = {"tokenizer_class": name} | ({} if space is None else {"add_prefix_space": space})
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        theirs = AutoTokenizer.from_pretrained(directory)
        assert Tokenizer.load(directory).ids("the") == theirs("the", add_special_tokens=False).input_ids


def test_sentencepiece_models_of_byte_pairs_or_broken_ones_are_refused(albert, tmp_path, make_sentencepiece):
    file = tmp_path / "spiece.model"
    assert error_message(file).startswith(": no such file")
    make_sentencepiece(file, [(special, 0.0) for special in ALBERT_SPECIALS], model_type=2)
    assert error_message(file).startswith(": only Unigram models")
    whole = (albert / "spiece.model").read_bytes()
    for content in (b"hello", whole[: len(whole) // 2], whole[:-3], b"\xff" * 99):
        file.write_bytes(content)
        assert error_message(file).startswith((": not a SentencePiece model", ": the tokenizers library"))
    file.write_bytes(whole.replace("\u2581the".encode(), b"\xe2\x96\xffthe"))
    assert error_message(file).startswith(": a piece is not UTF-8")
    file.write_bytes(b"")
    assert error_message(file).startswith(": only Unigram models")


# --- BPE --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "merges, message",
    [
        ("#version: 0.2\na b c\n", ":2: 'a b c' "),
        ("ab\n", ":1: 'ab' "),
        ("a b\n\n a\n", ":3: ' a' "),
    ],
)
def test_a_bad_line_of_merges_is_named(roberta, tmp_path, merges, message):
    shutil.copy(roberta / "vocab.json", tmp_path)
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(InputError) as error:
        Tokenizer.load(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'merges.txt'}{message}")


def test_a_vocabulary_without_merges_or_special_tokens_is_refused(roberta, tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "<s>": "1"}')
    assert error_message(tmp_path / "vocab.json") == ": lacks <pad>, <unk>, <s>, </s>, <mask>"
    shutil.copy(roberta / "vocab.json", tmp_path)
    with pytest.raises(InputError, match="merges.txt: no such file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_text("a \u4e2d\n")
    assert error_message(tmp_path / "vocab.json").startswith(": the tokenizers library rejects it (")


def test_either_file_names_the_tokenizer_and_a_comment_may_be_missing(roberta, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(roberta / name, tmp_path)
    (tmp_path / "merges.txt").write_bytes(
        (roberta / "merges.txt").read_bytes().split(b"\n", 1)[1].replace(b"\n", b"\r\n")
    )
    expected = Tokenizer.load(roberta).encode("The cat sat.").ids
    for path in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
        assert Tokenizer.load(path).encode("The cat sat.").ids == expected


def test_a_space_before_every_text_is_kept_as_configured(roberta, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(roberta / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("The cat").ids == Tokenizer.load(roberta).encode(" The cat").ids
    assert ours.encode("The cat").offsets[1][0] == 0 and ours.encode("The cat").offsets[-2][1] == 7


# --- tokenizer.json ---------------------------------------------------------------------------------------------------


@pytest.fixture
def good(directory, tmp_path):
    """The content of a tokenizer.json of each kind."""
    Tokenizer.load(directory).save(tmp_path / "good")
    return json.loads((tmp_path / "good" / "tokenizer.json").read_text(encoding="utf-8"))


def set_nested(content, *keys, to):
    for key in keys[:-1]:
        content = content[key]
    content[keys[-1]] = to


@pytest.mark.parametrize(
    "keys, to, message",
    [
        (("model",), None, ": tokenizer model none with pre_tokenizer "),
        (("model", "type"), "WordLevel", ": tokenizer model WordLevel with pre_tokenizer "),
        (("pre_tokenizer",), None, r" with pre_tokenizer None .*WordPiece \(BERT\), byte-level BPE"),
        (("pre_tokenizer",), {"type": "Whitespace"}, " with pre_tokenizer Whitespace "),
        (("pre_tokenizer",), {"type": "Sequence", "pretokenizers": ["x"]}, " with pre_tokenizer .*WordPiece"),
        (("model", "vocab"), None, ": model has no vocab"),
        (("model", "vocab"), ["abc"], ": vocab .*ids or scores"),
        (("added_tokens",), [{"id": 5}], ": vocab .*ids or scores.* added_tokens"),
        (("added_tokens",), [{"id": "5", "content": "a"}], ": id of 'a' .* '5'"),
        (("added_tokens",), [{"id": 5000, "content": "qqqq"}], ": vocabulary ids .* 0 to "),
        (("post_processor",), None, ": post_processor .*before a text"),
        (("normalizer",), {"type": "Other"}, r": the tokenizers library rejects it \("),
    ],
)  # fmt: skip
def test_a_bad_or_foreign_tokenizer_file_is_refused(good, tmp_path, keys, to, message):
    set_nested(good, *keys, to=to)
    (tmp_path / "tokenizer.json").write_text(json.dumps(good))
    assert re.search(message, error_message(tmp_path / "tokenizer.json"))


def test_a_panic_of_the_library_is_one_line_too(xlm_roberta, tmp_path):
    Tokenizer.load(xlm_roberta).save(tmp_path)
    good = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    del good["post_processor"]["special_tokens"]["<s>"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(good))
    assert error_message(tmp_path / "tokenizer.json").startswith(": the tokenizers library rejects it (no entry found")


def test_a_frame_like_no_bert_s_is_refused(good, tmp_path):
    framed = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}]
    known = {"x": {"id": "x", "ids": [2], "tokens": ["x"]}}
    pair = [*framed, {"Sequence": {"id": "B", "type_id": 0}}]
    good["post_processor"] = {"type": "TemplateProcessing", "single": framed, "pair": pair, "special_tokens": known}
    (tmp_path / "tokenizer.json").write_text(json.dumps(good))
    assert error_message(tmp_path / "tokenizer.json").startswith(": post_processor must")


def test_a_mask_must_be_among_the_entries(good, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(good))
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "<gap>"}')
    assert "entries lacks <gap>;" in error_message(tmp_path / "tokenizer.json")


def test_byte_pairs_of_characters_are_refused(tmp_path):
    peer = PeerTokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    peer.pre_tokenizer = pre_tokenizers.Whitespace()
    peer.save(str(tmp_path / "tokenizer.json"))
    assert error_message(tmp_path / "tokenizer.json").startswith(": tokenizer model BPE with pre_tokenizer Whitespace ")


def test_a_checkpoint_holds_its_tokenizer_whatever_the_kind(directory, make_model, tmp_path):
    ours = Tokenizer.load(directory)
    model = make_model(vocab_size=len(ours))
    checkpoint.save(Checkpoint(model=model, tokenizer=ours, model_type="bert"), tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    for file in directory.iterdir():
        shutil.copy(file, tmp_path)
    assert checkpoint.load(tmp_path).tokenizer.encode("The cat", "sat").ids == ours.encode("The cat", "sat").ids


def test_a_file_of_before_models_had_a_type_is_read_and_saved_with_one(directory, tmp_path):
    before = Tokenizer.load(directory)
    before.save(tmp_path / "typed")
    content = json.loads((tmp_path / "typed" / "tokenizer.json").read_text(encoding="utf-8"))
    kind = content["model"].pop("type")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    old = Tokenizer.load(tmp_path / "old")
    text = "It was a dark night, naïve <s> and 1776, 試."
    assert old.encode(text).ids == before.encode(text).ids
    old.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["type"] == kind
