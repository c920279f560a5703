"""SentencePiece models (Kudo & Richardson 2018), spiece.model, spm.model and sentencepiece.bpe.model, as what a
tokenizer.json holds: the forms of ALBERT, XLM-RoBERTa, DeBERTa v2 and BigBird.

Read with protobuf's own runtime; the numbers are those of sentencepiece_model.proto, of which a few fields are needed.
"""

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bothways.errors import InputError
from bothways.tokenizer.files import read_bytes
from bothways.tokenizer.json_models import DECODERS, GENERIC_CLASS, METASPACE, added_tokens, template_processing

# message -> field -> (number, kind). Enumerations are whole numbers on the wire.
FIELDS = {
    "Piece": {"piece": (1, "string"), "score": (2, "float")},
    "Trainer": {"model_type": (3, "int32"), "byte_fallback": (35, "bool")},
    "Normalizer": {"precompiled_charsmap": (2, "bytes")},
    "Model": {"pieces": (1, "Piece"), "trainer_spec": (2, "Trainer"), "normalizer_spec": (3, "Normalizer")},
}
UNIGRAM = 1  # TrainerSpec.ModelType; what a file without one is
# transformers' classes
ALBERT, XLM_ROBERTA, DEBERTA = "AlbertTokenizer", "XLMRobertaTokenizer", "DebertaV2Tokenizer"
BIG_BIRD = "BigBirdTokenizer"
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
BERT_SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
Pieces = list[tuple[str, float]]  # with their log probabilities


def content(file: Path, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a tokenizer.json that reads text as the file does, and the config with transformers' class.

    InputError: not such a file, or a kind that is none of the four.
    """
    model = _model(file)
    pieces = [(one.piece, one.score) for one in model.pieces]
    spec, charsmap = model.trainer_spec, model.normalizer_spec.precompiled_charsmap
    if any(isinstance(piece, bytes) for piece, _ in pieces):
        raise InputError(f"{file}: a piece is not UTF-8, so the file is damaged; fetch the file again")
    if not pieces or (spec.model_type or UNIGRAM) != UNIGRAM or spec.byte_fallback:
        raise InputError(f"{file}: not a Unigram model of whole characters; of SentencePiece's kinds only that is read")
    told = str(config.get("tokenizer_class", "")).removesuffix("Fast")  # others' files have the same names
    kind = _kind([piece for piece, _ in pieces], told)
    told = told or kind
    if not kind or told not in (kind, GENERIC_CLASS):
        raise InputError(f"{file}: {told or 'its kind'} is not supported; {', '.join(FORMS)} are")
    folding = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}] if charsmap else []
    # transformers makes these two anew, without what the file folds, unless told to follow a tokenizer.json
    follows = {"tokenizer_class": f"{GENERIC_CLASS}Fast"} if kind in (DEBERTA, BIG_BIRD) else {}
    return FORMS[kind](pieces, folding, config), {"tokenizer_class": kind, **config, **follows}


def _kind(names: list[str], told: str) -> str:
    """Which of FORMS has such entries, or ""; where two have, the one that is told."""
    known = set(names)
    if {"<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]"} <= known:
        begins_so = names[:3] == ["<pad>", "</s>", "<s>"]
        return told if told in (ALBERT, BIG_BIRD) else BIG_BIRD if begins_so else ALBERT
    if {"[PAD]", "[UNK]", "[CLS]", "[SEP]"} <= known:
        return DEBERTA
    return XLM_ROBERTA if names[:3] == ["<unk>", "<s>", "</s>"] and not {"<pad>", "<mask>"} & known else ""


def _albert(pieces: Pieces, folding: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """Quotes, accents and case are folded before what the file folds. Pieces such as `9,` are split again in ALBERT's
    own code: here they are worth less than any way to write them in two."""
    quotes = [{"type": "Replace", "pattern": {"String": two}, "content": '"'} for two in ("``", "''")]
    accents = [] if config.get("keep_accents", False) else [{"type": "NFKD"}, {"type": "StripAccents"}]
    case = [{"type": "Lowercase"}] if config.get("do_lower_case", True) else []
    split = {piece for piece, _ in pieces if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()}
    vocab = [(piece, score - 100 * (piece in split)) for piece, score in pieces]
    return _content(vocab, [*quotes, *accents, *case, *folding], BERT_SPECIALS)


def _deberta(pieces: Pieces, folding: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """The mask stands behind the pieces, where a file has none of its own."""
    vocab = pieces if any(piece == "[MASK]" for piece, _ in pieces) else [*pieces, ("[MASK]", 0.0)]
    case = [{"type": "Lowercase"}] if config.get("do_lower_case", False) else []
    ends = {"type": "Strip", "strip_left": True, "strip_right": True}
    marks = [{"type": "Punctuation", "behavior": "Isolated"}] if config.get("split_by_punct", False) else []
    special_tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return _content(vocab, [*case, ends, *folding, SPACES], special_tokens, splitters=marks)


def _big_bird(pieces: Pieces, folding: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    end = {"type": "Strip", "strip_left": False, "strip_right": True}
    return _content(pieces, [*folding, end, SPACES], BERT_SPECIALS, splitters=[])


def _xlm_roberta(pieces: Pieces, folding: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """Ids count as in fairseq: its own first entries stand before the pieces, and the mask behind them."""
    first = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab = [*first, *pieces[3:], ("<mask>", 0.0)]
    return _content(vocab, folding, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), separators=2, second=0)


FORMS = {ALBERT: _albert, XLM_ROBERTA: _xlm_roberta, DEBERTA: _deberta, BIG_BIRD: _big_bird}


def _content(
    vocab: Pieces, normalizers: list[dict[str, Any]], special_tokens: tuple[str, str, str, str, str], *,
    splitters: Sequence[dict[str, Any]] = ({"type": "WhitespaceSplit"},), separators: int = 1, second: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """specials: what fills up, what is unknown, what stands before a text, what behind, and the mask. splitters: of
    text, before spaces become a sign. separators, second: see BertBackend."""
    ids = {piece: index for index, (piece, _) in enumerate(vocab)}
    _, unknown, before, behind, mask = special_tokens
    return {
        "version": "1.0",
        "added_tokens": added_tokens({name: ids[name] for name in special_tokens}, mask=mask),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splitters, DECODERS[METASPACE]]},
        "post_processor": template_processing(before, behind, ids, separators=separators, second=second),
        "decoder": DECODERS[METASPACE],
        "model": {"type": "Unigram", "unk_id": ids[unknown], "vocab": vocab, "byte_fallback": False},
    }  # fmt: skip


def _model(file: Path) -> Any:
    """The file as a ModelProto."""
    try:
        from google.protobuf.message import DecodeError
    except ImportError:
        raise InputError(f"{file}: needs protobuf to be read: pip install 'bothways[tokenizers]'") from None
    model = _message()()
    try:
        model.ParseFromString(read_bytes(file))
    except DecodeError:
        raise InputError(f"{file}: not a SentencePiece model, or a damaged one; fetch the file again") from None
    return model


@cache
def _message() -> Any:
    """The class of a ModelProto, made of FIELDS."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    described = descriptor_pb2.FileDescriptorProto(name="bothways/sentencepiece.proto", package="bothways")
    for message, fields in FIELDS.items():
        own = described.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = own.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if name == "pieces" else kinds.LABEL_OPTIONAL
            if kind in FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".bothways.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bothways.Model"))
