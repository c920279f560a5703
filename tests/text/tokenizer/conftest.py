"""Small real tokenizers of other kinds than BERT's, as directories: the files of RoBERTa, XLM-RoBERTa, ALBERT, DeBERTa
v2 and BigBird."""

import base64
import json
import zlib
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
BYTES_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
ALBERT_SPECIALS = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
DEBERTA_SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
BIG_BIRD_SPECIALS = ["<pad>", "</s>", "<s>", "[CLS]", "[SEP]", "[MASK]", "<unk>"]
# A normalization of SentencePiece's, as it compiles one: U+FB01 is fi, U+FF21 is A, U+3000 a space, U+00BD is 1/2 with
# U+2044, U+0001 nothing, and e with U+0301 is U+00E9.
CHARSMAP = zlib.decompress(
    base64.b64decode(
        "eNot03mQD2QcwOH3t60/DBq3HXLlvmK3nEnlzpkrd8jsuoqKlEK77jv3nVtaVm4qlkLOdZezSysWGV3OzmeNd+aZz/vOO+9/3zdEhxCyh8yVGMkRQlpM"
        "VEjKEsKjzqn6iCZGR4VEdxH7lIf32eyXalbN7XEecpKL/BQgL/koSCFi2HE8KhTRojxGYR6nBMUoTmnKUJJSlKcCZSnHE1SmIpWI40mqEEs1qvMUVanF"
        "09SgJnV4lto8Q13q8RzP05BG1KcBTWhKY16gBS1pRnNa04YXacVLtKct7ehEZzrQkZfpRhe68go96U4PEuhF/IqoEK996Udv+tCfAbzKa7zJQF7nDQbz"
        "NoN4i3d5j3cYwnDeZyjDGMHIzAEgiTGMZRSjmcBExjGeKXzAJCYznRlMZRqzmcNMZjGfBcxlHotYzEI+ZBnLWcJSPmIVK1jJatbwMcl8wjpSWMtGNrGe"
        "DWxlG5vZwuds51M+Yye7MmeRVHZnyoiEL/RL9rGfvXzFIQ5zgIMc5RhpHOEkpzjOCU5zhq/5hvNc4Czn+J4f+JbvSF8SCen6Ixe5zBUu8TPXuE4GV7lZ"
        "MRJu6i/c4Hf+4Fd+4zZ3+JNb3Ocv7nKPf/mPv/knPPh4sT8ljYoz/Al9wp7k8D8kDZA6"
    )
)


def paragraphs():
    lines = (FIXTURES / "wikipedia.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines]


def trained_pieces(special_tokens, size=900):
    """Pieces and their scores, learned by `tokenizers`; the special ones first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    peer = Tokenizer(models.Unigram())
    peer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    unknown = "[UNK]" if "[UNK]" in special_tokens else "<unk>"
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special_tokens, unk_token=unknown, show_progress=False
    )
    peer.train_from_iterator(paragraphs()[:150], trainer)
    return [(piece, score) for piece, score in json.loads(peer.to_str())["model"]["vocab"]]


def write_sentencepiece(file, pieces, *, controls=(), user_defined=(), charsmap=CHARSMAP, model_type=None):
    """A SentencePiece model as its own library writes it, by transformers' copy of its description."""
    from transformers.utils import sentencepiece_model_pb2_new as description

    kinds = description.ModelProto.SentencePiece
    model = description.ModelProto()
    for piece, score in pieces:
        kind = kinds.CONTROL if piece in controls else kinds.USER_DEFINED if piece in user_defined else kinds.NORMAL
        model.pieces.add(piece=piece, score=score, type=kinds.UNKNOWN if piece in ("<unk>", "[UNK]") else kind)
    model.trainer_spec.unk_id = next((i for i, (piece, _) in enumerate(pieces) if piece in ("<unk>", "[UNK]")), 0)
    model.normalizer_spec.precompiled_charsmap = charsmap
    if model_type is not None:
        model.trainer_spec.model_type = model_type
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(model.SerializeToString())


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    """vocab.json and merges.txt; the mask is the last entry, as there."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    directory = tmp_path_factory.mktemp("roberta")
    peer = Tokenizer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=BYTES_SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    peer.train_from_iterator(paragraphs()[:150], trainer)
    peer.add_special_tokens(["<mask>"])
    merges = json.loads(peer.to_str())["model"]["merges"]
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
    (directory / "vocab.json").write_text(json.dumps(peer.get_vocab()), encoding="utf-8")
    (directory / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def xlm_roberta(tmp_path_factory):
    """sentencepiece.bpe.model; the pieces are numbered anew when it is read."""
    directory = tmp_path_factory.mktemp("xlm-roberta")
    pieces = trained_pieces(["<unk>", "<s>", "</s>"])
    write_sentencepiece(directory / "sentencepiece.bpe.model", pieces, controls=("<s>", "</s>"))
    return directory


@pytest.fixture(scope="session")
def albert(tmp_path_factory):
    """spiece.model"""
    directory = tmp_path_factory.mktemp("albert")
    write_sentencepiece(directory / "spiece.model", trained_pieces(ALBERT_SPECIALS), controls=ALBERT_SPECIALS)
    return directory


@pytest.fixture(scope="session")
def deberta(tmp_path_factory):
    """spm.model, which has no mask."""
    directory = tmp_path_factory.mktemp("deberta")
    write_sentencepiece(directory / "spm.model", trained_pieces(DEBERTA_SPECIALS), controls=DEBERTA_SPECIALS[:3])
    return directory


@pytest.fixture(scope="session")
def big_bird(tmp_path_factory):
    """spiece.model, with RoBERTa's special tokens beside BERT's."""
    directory = tmp_path_factory.mktemp("big-bird")
    write_sentencepiece(directory / "spiece.model", trained_pieces(BIG_BIRD_SPECIALS), controls=BIG_BIRD_SPECIALS[:6])
    return directory


@pytest.fixture(scope="session")
def make_pieces():
    return trained_pieces


@pytest.fixture(scope="session")
def make_sentencepiece():
    return write_sentencepiece


@pytest.fixture(params=["roberta", "xlm_roberta", "albert", "deberta", "big_bird"])
def kind(request):
    return request.param


@pytest.fixture
def directory(kind, request):
    """The directory of one kind, as it is published."""
    return request.getfixturevalue(kind)
