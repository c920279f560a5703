"""Tokenizer file formats: detects BERT's files, byte-level BPE and Unigram (SentencePiece)."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

from bothways.base.errors import InputError, MissingFile, shorten
from bothways.base.io import Files, get_object, read_json, read_text
from bothways.base.paths import RemotePath, as_path
from bothways.text.tokenizer import bert_files
from bothways.text.tokenizer.added_tokens import check_vocab, merge_added, read_configs
from bothways.text.tokenizer.bert_files import TokenizerData
from bothways.text.tokenizer.library import (
    BYTE_LEVEL_SPACE,
    DECODERS,
    GENERIC_CLASS,
    METASPACE,
    ROLES,
    LibraryBackend,
    added_tokens,
    special_token_name,
    template_processing,
)
from bothways.text.tokenizer.regexes import check_patterns

FILE_NAMES = (  # the first one in a directory is used
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
)
BESIDE = (
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
)
ROBERTA = "RobertaTokenizer"  # transformers' classes
DEBERTA = "DebertaTokenizer"
# Class names without Tokenizer or TokenizerFast. Other classes interpret files of the same names differently.
GENERIC_CLASSES = (
    "",
    "PreTrained",
    "TokenizersBackend",
)
OWN_CLASSES = {
    "vocab.txt": (
        "Bert",
        "DistilBert",
        "Electra",
        "MobileBert",
        "SqueezeBert",
        "ConvBert",
        "LayoutLM",
        "Funnel",
        "Lxmert",
        "RetriBert",
        "Realm",
        "Splinter",
        "DPRQuestionEncoder",
        "DPRContextEncoder",
        "DPRReader",
    ),
    "vocab.json": (
        "Roberta",
        "Longformer",
        "Deberta",
        "Bart",
        "LED",
        "GPT2",
    ),
}


def load(path: str | PathLike[str] | Files) -> TokenizerData:
    """Load a tokenizer file, or a directory that has one. InputError if it is invalid or not supported."""
    if isinstance(path, Files):
        files = path
        file = path.path
    else:
        file = _local(as_path(path))
        files = Files(file if file.is_dir() else file.parent)

    if file == files.path:
        candidates = [file / name for name in FILE_NAMES if files.has(name)]
        if not candidates:
            raise MissingFile(f"{file}: has no {', '.join(FILE_NAMES[:-1])} or {FILE_NAMES[-1]}")
        file = candidates[0]

    if file.suffix == ".model":
        from bothways.text.tokenizer import sentencepiece

        content, config = sentencepiece.content(file, _config(files))
        return _library_data(content, config, file, files)
    if file.name in ("vocab.json", "merges.txt"):
        return _read_byte_level(file, files)
    if file.suffix == ".json":
        return _read_json(file, files)
    _check_class(file, "vocab.txt", files)
    return bert_files.read_vocab_txt(file, files)


def _local(path: Path) -> Path:
    """The path; of a file in object storage, the path of a copy, with the files beside it that say how it is read."""
    if not isinstance(path, RemotePath):
        return path
    if path.is_file():
        copy: Path = path.parent.download_files([path.name, *FILE_NAMES, *BESIDE]) / path.name
        return copy
    return path.download_files([*FILE_NAMES, *BESIDE])


def _read_byte_level(file: Path, files: Files) -> TokenizerData:
    """Read the vocab.json and merges.txt of RoBERTa or DeBERTa."""
    _check_class(file, "vocab.json", files)
    config = _config(files)
    content = _byte_level_content(files, config)
    if content["post_processor"]["type"] == "RobertaProcessing":
        config = {"tokenizer_class": ROBERTA, **config}
    else:  # transformers' DebertaTokenizer would add two separators
        config["tokenizer_class"] = f"{GENERIC_CLASS}Fast"
    return _library_data(content, config, file, files)


def _read_json(file: Path, files: Files) -> TokenizerData:
    """Read a tokenizer.json of any kind."""
    content = files.json(file.name) or read_json(file)
    model = get_object(content, "model", file)
    model = {"type": _model_type(model), **model}
    if model["type"] == "WordPiece":
        return bert_files.read_bert_json(content, file, files)

    config = _config(files)
    content = _with_prefix_space({**content, "model": model}, config)
    return _library_data(content, config, file, files)


def _with_prefix_space(content: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The content with add_prefix_space as in the config, which transformers' classes of byte-level BPE follow."""
    splitter = content.get("pre_tokenizer")
    if not isinstance(splitter, dict) or splitter.get("type") != "ByteLevel":
        return content

    name = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    is_own_class = name.removesuffix("Tokenizer") in OWN_CLASSES["vocab.json"]
    has_flag_alone = not name and "add_prefix_space" in config
    if not is_own_class and not has_flag_alone:
        return content

    splitter = {**splitter, "add_prefix_space": config.get("add_prefix_space", False)}
    return {**content, "pre_tokenizer": splitter}


def _check_class(file: Path, kind: str, files: Files) -> None:
    """InputError if the class in tokenizer_config.json, or else config.json, interprets such files differently."""
    config = _config(files)
    class_name = config.get("tokenizer_class") or files.json("config.json").get("tokenizer_class")
    name = str(class_name or "").removesuffix("Fast").removesuffix("Tokenizer")
    nested = [key for key in ("word_tokenizer_type", "subword_tokenizer_type") if config.get(key)]
    if nested or name not in (*GENERIC_CLASSES, *OWN_CLASSES[kind]):
        supported = ", ".join(f"{name}Tokenizer" for name in OWN_CLASSES[kind][:3])
        raise InputError(
            f"{file}: a vocabulary of {shorten(class_name or nested[0])} is not supported; use one of {supported}"
        )


def _model_type(model: dict[str, Any]) -> str:
    """The model type of a file from before 2021, which does not name it (roberta-base, xlm-roberta-base)."""
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "none"


def _library_data(
    content: dict[str, Any],
    config: dict[str, Any],
    file: Path,
    files: Files,
) -> TokenizerData:
    """The data of a tokenizer.json that is not BERT's."""
    space_symbol = _space_symbol(content, file)
    entries = _vocab(content, file)
    tokens = content.get("added_tokens") or []
    configs = read_configs(files)
    vocab, added = merge_added(entries, tokens, file, configs=configs, files=files)

    by_id = sorted(added.values(), key=lambda entry: entry["id"])
    content = {**content, "added_tokens": by_id, "truncation": None, "padding": None}
    try:
        # Before the library sees them: a pattern may take forever.
        check_patterns(content.get("normalizer"), content.get("pre_tokenizer"), content.get("decoder"))
        backend = LibraryBackend(json.dumps(content), vocab, space_symbol, config)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return TokenizerData(vocab=vocab, options={"backend": backend}, file=file)


def _space_symbol(content: dict[str, Any], file: Path) -> str:
    """The symbol for spaces, which identifies byte-level BPE or Unigram; InputError for other models."""
    model_type = get_object(content, "model", file).get("type", "none")
    splitter = get_object(content, "pre_tokenizer", file)
    parts = splitter.get("pretokenizers")
    if not isinstance(parts, list):
        parts = [splitter]
    symbols = {str(part.get("type")): part.get("replacement") for part in parts if isinstance(part, dict)}
    if model_type == "BPE" and "ByteLevel" in symbols:
        return BYTE_LEVEL_SPACE
    if model_type == "Unigram" and symbols.get("Metaspace") == METASPACE:
        return METASPACE
    raise InputError(
        f"{file}: tokenizer model {shorten(model_type)} with pre_tokenizer {shorten(', '.join(symbols))} is not "
        "supported; use WordPiece (BERT), byte-level BPE (RoBERTa) or Unigram (ALBERT, XLM-RoBERTa)"
    )


def _vocab(content: dict[str, Any], file: Path) -> dict[str, int]:
    """Token -> id, including added_tokens."""
    entries = content["model"].get("vocab")
    if not entries:
        raise InputError(f"{file}: model has no vocab; download the file again")
    try:
        if isinstance(entries, dict):
            vocab = dict(entries)
        else:  # pieces with their scores, in the order of ids
            vocab = {piece: index for index, (piece, _) in enumerate(entries)}
        vocab |= {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{file}: vocab must have entries with ids or scores, and added_tokens content and id"
        ) from None
    return check_vocab(vocab, file)


def _byte_level_content(files: Files, config: dict[str, Any]) -> dict[str, Any]:
    """The equivalent tokenizer.json of vocab.json and merges.txt, for RoBERTa or DeBERTa."""
    vocab_file = files.path / "vocab.json"
    vocab = files.read(vocab_file)
    names = {role: special_token_name(role, config, vocab) for role in ROLES}
    missing = [name for name in names.values() if type(vocab.get(name)) is not int]
    if missing:
        raise InputError(f"{vocab_file}: lacks {', '.join(map(shorten, missing))}")

    spaces = {"add_prefix_space": config.get("add_prefix_space", False), "trim_offsets": True}
    cls = names["cls"]
    sep = names["sep"]
    class_name = str(config.get("tokenizer_class", DEBERTA)).removesuffix("Fast")
    if cls == "[CLS]" and class_name in (DEBERTA, GENERIC_CLASS):
        post_processor = template_processing(cls, sep, vocab, num_separators=1, second_segment=1)
    else:
        post_processor = {
            "type": "RobertaProcessing",
            "sep": [sep, vocab[sep]],
            "cls": [cls, vocab[cls]],
            **spaces,
        }

    return {
        "version": "1.0",
        "added_tokens": added_tokens({name: vocab[name] for name in names.values()}, mask=names["mask"]),
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **spaces, "use_regex": True},
        "post_processor": post_processor,
        "decoder": DECODERS[BYTE_LEVEL_SPACE],
        "model": {"type": "BPE", "vocab": vocab, "merges": _merges(files.path / "merges.txt")},
    }


def _merges(file: Path) -> list[list[str]]:
    """Pairs of tokens to merge, one per line; the first line may be a comment."""
    lines = read_text(file).replace("\r\n", "\n").split("\n")
    merges = []
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith("#version"):
            continue
        pair = line.split(" ")
        if len(pair) == 2 and all(pair):
            merges.append(pair)
        elif line:
            raise InputError(f"{file}:{number}: {short_repr(line)} is not a merge: two tokens separated by a space")
    return merges


def _config(files: Files) -> dict[str, Any]:
    """tokenizer_config.json and special_tokens_map.json, as far as they exist."""
    config = {**files.json("special_tokens_map.json"), **files.json("tokenizer_config.json")}
    flags = bert_files.read_flags(config, files.path / "tokenizer_config.json")
    return {key: value for key, value in config.items() if key in flags or key not in bert_files.FLAGS}
