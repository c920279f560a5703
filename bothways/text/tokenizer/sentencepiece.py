"""SentencePiece models (Kudo & Richardson 2018), converted to a tokenizer.json.

Reads spiece.model, spm.model and sentencepiece.bpe.model of ALBERT, XLM-RoBERTa, DeBERTa v2 and BigBird, with the
protobuf runtime and the few fields of sentencepiece_model.proto that are needed.
"""

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, needs_package
from bothways.base.io import read_bytes
from bothways.text.tokenizer.library import DECODERS, GENERIC_CLASS, METASPACE, added_tokens, template_processing

# message -> field -> (field number, type). Enumerations are encoded as integers.
FIELDS = {
    "Piece": {
        "piece": (1, "string"),
        "score": (2, "float"),
    },
    "Trainer": {
        "model_type": (3, "int32"),
        "byte_fallback": (35, "bool"),
    },
    "Normalizer": {
        "precompiled_charsmap": (2, "bytes"),
    },
    "Model": {
        "pieces": (1, "Piece"),
        "trainer_spec": (2, "Trainer"),
        "normalizer_spec": (3, "Normalizer"),
    },
}
UNIGRAM = 1  # TrainerSpec.ModelType; the default
ALBERT = "AlbertTokenizer"  # transformers' classes
XLM_ROBERTA = "XLMRobertaTokenizer"
DEBERTA = "DebertaV2Tokenizer"
BIG_BIRD = "BigBirdTokenizer"
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
BERT_SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
DEBERTA_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
XLM_ROBERTA_SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
Pieces = list[tuple[str, float]]  # pieces with log probabilities


def content(file: Path, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The equivalent tokenizer.json, and the config with transformers' tokenizer class.

    InputError if the file is not a SentencePiece model of one of the four encoders.
    """
    model = _model(file)
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    if any(isinstance(piece, bytes) for piece, _ in pieces):
        raise InputError(f"{file}: a piece is not UTF-8; the file is damaged, download it again")

    trainer = model.trainer_spec
    model_type = trainer.model_type or UNIGRAM
    if not pieces or model_type != UNIGRAM or trainer.byte_fallback:
        raise InputError(f"{file}: only Unigram models without byte_fallback are supported")

    class_name = str(config.get("tokenizer_class", "")).removesuffix("Fast")
    detected = _detect_class([piece for piece, _ in pieces], class_name)
    class_name = class_name or detected
    if not detected or class_name not in (detected, GENERIC_CLASS):
        raise InputError(f"{file}: {class_name or 'this model'} is not supported; use one of {', '.join(CONVERTERS)}")

    normalization = []
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        encoded = base64.b64encode(charsmap).decode()
        normalization.append({"type": "Precompiled", "precompiled_charsmap": encoded})

    new_config = {"tokenizer_class": detected, **config}
    if detected in (DEBERTA, BIG_BIRD):
        # transformers would rebuild these two without the file's normalization, unless the class is the generic one.
        new_config["tokenizer_class"] = f"{GENERIC_CLASS}Fast"
    return CONVERTERS[detected](pieces, normalization, config), new_config


def _model(file: Path) -> Any:
    """Parse the file as a ModelProto."""
    try:
        from google.protobuf.message import DecodeError
    except ImportError:
        raise needs_package(file, "protobuf", "tokenizers") from None

    model = _message()()
    try:
        model.ParseFromString(read_bytes(file))
    except DecodeError:
        raise InputError(f"{file}: not a SentencePiece model, or damaged; download it again") from None
    return model


@cache
def _message() -> Any:
    """The ModelProto class with the fields of FIELDS."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    proto = descriptor_pb2.FieldDescriptorProto
    descriptor = descriptor_pb2.FileDescriptorProto(name="bothways/sentencepiece.proto", package="bothways")
    for message, fields in FIELDS.items():
        message_type = descriptor.message_type.add(name=message)
        for name, (number, type_name) in fields.items():
            field = message_type.field.add(name=name, number=number)
            field.label = proto.LABEL_REPEATED if name == "pieces" else proto.LABEL_OPTIONAL
            if type_name in FIELDS:
                field.type = proto.TYPE_MESSAGE
                field.type_name = f".bothways.{type_name}"
            else:
                field.type = proto.Type.Value(f"TYPE_{type_name.upper()}")

    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bothways.Model"))


def _detect_class(pieces: list[str], class_name: str) -> str:
    """The tokenizer class with such special tokens, or "". class_name: decides between ALBERT and BigBird."""
    entries = set(pieces)
    if {"<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]"} <= entries:
        if class_name in (ALBERT, BIG_BIRD):
            return class_name
        return BIG_BIRD if pieces[:3] == ["<pad>", "</s>", "<s>"] else ALBERT

    if {"[PAD]", "[UNK]", "[CLS]", "[SEP]"} <= entries:
        return DEBERTA

    has_first_pieces = pieces[:3] == ["<unk>", "<s>", "</s>"]
    return XLM_ROBERTA if has_first_pieces and not {"<pad>", "<mask>"} & entries else ""


def _albert(pieces: Pieces, normalization: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """Normalizes quotes, accents and case before the file's normalization.

    ALBERT's own code splits pieces such as `9,` again: a lower score than the score of any split has the same effect.
    """
    normalizers: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    ]
    if not config.get("keep_accents", False):
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if config.get("do_lower_case", True):
        normalizers.append({"type": "Lowercase"})

    vocab = []
    for piece, score in pieces:
        has_comma_after_digit = len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        vocab.append((piece, score - 100 if has_comma_after_digit else score))
    return _content(vocab, [*normalizers, *normalization], BERT_SPECIALS)


def _deberta(pieces: Pieces, normalization: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """The mask follows the pieces if the file has none."""
    has_mask = any(piece == "[MASK]" for piece, _ in pieces)
    vocab = pieces if has_mask else [*pieces, ("[MASK]", 0.0)]

    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    normalizers = [strip, *normalization, SPACES]
    if config.get("do_lower_case", False):
        normalizers.insert(0, {"type": "Lowercase"})

    splitters = []
    if config.get("split_by_punct", False):
        splitters.append({"type": "Punctuation", "behavior": "Isolated"})
    return _content(vocab, normalizers, DEBERTA_SPECIALS, splitters=splitters)


def _big_bird(pieces: Pieces, normalization: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    return _content(pieces, [*normalization, strip, SPACES], BERT_SPECIALS, splitters=[])


def _xlm_roberta(pieces: Pieces, normalization: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """Ids as in fairseq: its own special tokens before the pieces, and the mask after them."""
    vocab = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *pieces[3:],
        ("<mask>", 0.0),
    ]
    return _content(vocab, normalization, XLM_ROBERTA_SPECIALS, num_separators=2, second_segment=0)


CONVERTERS = {
    ALBERT: _albert,
    XLM_ROBERTA: _xlm_roberta,
    DEBERTA: _deberta,
    BIG_BIRD: _big_bird,
}


def _content(
    vocab: Pieces,
    normalizers: list[dict[str, Any]],
    special_tokens: tuple[str, str, str, str, str],
    *,
    splitters: Sequence[dict[str, Any]] = ({"type": "WhitespaceSplit"},),
    num_separators: int = 1,
    second_segment: int = 1,
) -> dict[str, Any]:
    """The tokenizer.json.

    vocab: pieces with log probabilities, by id.
    normalizers: the steps of normalization.
    special_tokens: padding, unknown, [CLS], [SEP] and mask.
    splitters: pre-tokenizers before Metaspace.
    num_separators, second_segment: see BertBackend.
    """
    ids = {piece: index for index, (piece, _) in enumerate(vocab)}
    _, unknown, cls, sep, mask = special_tokens
    template = template_processing(cls, sep, ids, num_separators=num_separators, second_segment=second_segment)
    return {
        "version": "1.0",
        "added_tokens": added_tokens({name: ids[name] for name in special_tokens}, mask=mask),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splitters, DECODERS[METASPACE]]},
        "post_processor": template,
        "decoder": DECODERS[METASPACE],
        "model": {"type": "Unigram", "unk_id": ids[unknown], "vocab": vocab, "byte_fallback": False},
    }
