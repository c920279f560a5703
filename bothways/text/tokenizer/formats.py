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
from bothways.text.tokenizer.bert_files import TokenizerData, read_configs
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

# The first one in a directory is used.
FILE_NAMES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
BESIDE = ("merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json")
ROBERTA, DEBERTA = "RobertaTokenizer", "DebertaTokenizer"  # transformers' classes
# Class names without Tokenizer or TokenizerFast. Other classes interpret files of the same names differently.
GENERIC_CLASSES = ("", "PreTrained", "TokenizersBackend")
SUPPORTED_CLASSES = {
    "vocab.txt": (
        *GENERIC_CLASSES,
        *"Bert DistilBert Electra MobileBert SqueezeBert ConvBert LayoutLM Funnel Lxmert RetriBert Realm".split(),
        *"Splinter DPRQuestionEncoder DPRContextEncoder DPRReader".split(),
    ),
    "vocab.json": (*GENERIC_CLASSES, "Roberta", "Longformer", "Deberta", "Bart", "LED", "GPT2"),
}


def load(path: str | PathLike[str] | Files) -> TokenizerData:
    """Load a tokenizer file, or a directory that has one. InputError if it is invalid or not supported."""
    file = path.path if isinstance(path, Files) else _local(as_path(path))
    files = path if isinstance(path, Files) else Files(file if file.is_dir() else file.parent)
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
        _check_class(file, "vocab.json", files)
        config = _config(files)
        content = _byte_level_content(files, config)
        if content["post_processor"]["type"] == "RobertaProcessing":
            config = {"tokenizer_class": ROBERTA, **config}
        else:  # transformers' DebertaTokenizer would add two separators
            config["tokenizer_class"] = f"{GENERIC_CLASS}Fast"
        return _library_data(content, config, file, files)
    if file.suffix != ".json":
        _check_class(file, "vocab.txt", files)
        return bert_files.read_vocab_txt(file, files)
    content = files.json(file.name) or read_json(file)
    model = {"type": _model_type(get_object(content, "model", file)), **get_object(content, "model", file)}
    if model["type"] == "WordPiece":
        return bert_files.read_bert_json(content, file, files)
    config = _config(files)
    return _library_data(_with_prefix_space({**content, "model": model}, config), config, file, files)


def _local(path: Path) -> Path:
    """The path; of one in object storage, that of a copy, with the files beside it that say how it is read."""
    if not isinstance(path, RemotePath):
        return path
    if path.is_file():
        copy: Path = path.parent.download_files([path.name, *FILE_NAMES, *BESIDE]) / path.name
        return copy
    return path.download_files([*FILE_NAMES, *BESIDE])


def _with_prefix_space(content: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The content with add_prefix_space as in the config, which transformers' classes of byte-level BPE follow."""
    name, splitter = str(config.get("tokenizer_class") or "").removesuffix("Fast"), content.get("pre_tokenizer")
    named = name.removesuffix("Tokenizer") in SUPPORTED_CLASSES["vocab.json"][len(GENERIC_CLASSES) :]
    if not isinstance(splitter, dict) or splitter.get("type") != "ByteLevel":
        return content
    if not named and (name or "add_prefix_space" not in config):
        return content
    return {**content, "pre_tokenizer": {**splitter, "add_prefix_space": config.get("add_prefix_space", False)}}


def _check_class(file: Path, kind: str, files: Files) -> None:
    """InputError if the class in tokenizer_config.json, or else config.json, interprets such files differently."""
    config = _config(files)
    class_name = config.get("tokenizer_class") or files.json("config.json").get("tokenizer_class")
    name = str(class_name or "").removesuffix("Fast").removesuffix("Tokenizer")
    nested = [key for key in ("word_tokenizer_type", "subword_tokenizer_type") if config.get(key)]
    if name not in SUPPORTED_CLASSES[kind] or nested:
        supported = ", ".join(f"{name}Tokenizer" for name in SUPPORTED_CLASSES[kind][len(GENERIC_CLASSES) :][:3])
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


def _library_data(content: dict[str, Any], config: dict[str, Any], file: Path, files: Files) -> TokenizerData:
    """The data of a tokenizer.json that is not BERT's."""
    space_symbol = _space_symbol(content, file)
    entries, tokens, configs = _vocab(content, file), content.get("added_tokens") or [], read_configs(files)
    vocab, added = bert_files.merge_added(entries, tokens, file, configs, files)
    content = {**content, "added_tokens": sorted(added.values(), key=lambda entry: entry["id"])}
    try:
        check_patterns(*map(content.get, ("normalizer", "pre_tokenizer", "decoder")))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    text = json.dumps({**content, "truncation": None, "padding": None})
    try:
        return TokenizerData(vocab, {"backend": LibraryBackend(text, vocab, space_symbol, config)}, file)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _space_symbol(content: dict[str, Any], file: Path) -> str:
    """The symbol for spaces, which identifies byte-level BPE or Unigram; InputError for other models."""
    model_type = get_object(content, "model", file).get("type", "none")
    splitter = get_object(content, "pre_tokenizer", file)
    parts = splitter.get("pretokenizers")
    parts = parts if isinstance(parts, list) else [splitter]
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
        vocab = dict(entries) if isinstance(entries, dict) else {piece: id for id, (piece, _) in enumerate(entries)}
        vocab |= {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{file}: vocab must have entries with ids or scores, and added_tokens content and id"
        ) from None
    return bert_files.check_vocab(vocab, file)


def _byte_level_content(files: Files, config: dict[str, Any]) -> dict[str, Any]:
    """The equivalent tokenizer.json of vocab.json and merges.txt, for RoBERTa or DeBERTa."""
    directory, vocab = files.path, files.read(files.path / "vocab.json")
    names = {role: special_token_name(role, config, vocab) for role in ROLES}
    if missing := [name for name in names.values() if type(vocab.get(name)) is not int]:
        raise InputError(f"{directory / 'vocab.json'}: lacks {', '.join(map(shorten, missing))}")
    spaces = {"add_prefix_space": config.get("add_prefix_space", False), "trim_offsets": True}
    cls, sep = ([names[role], vocab[names[role]]] for role in ("cls", "sep"))
    post_processor: dict[str, Any] = {"type": "RobertaProcessing", "sep": sep, "cls": cls, **spaces}
    if names["cls"] == "[CLS]" and str(config.get("tokenizer_class", DEBERTA)).removesuffix("Fast") in (
        DEBERTA,
        GENERIC_CLASS,
    ):
        post_processor = template_processing(names["cls"], names["sep"], vocab, num_separators=1, second_segment=1)
    return {
        "version": "1.0",
        "added_tokens": added_tokens({name: vocab[name] for name in names.values()}, mask=names["mask"]),
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **spaces, "use_regex": True},
        "post_processor": post_processor,
        "decoder": DECODERS[BYTE_LEVEL_SPACE],
        "model": {"type": "BPE", "vocab": vocab, "merges": _merges(directory / "merges.txt")},
    }


def _merges(file: Path) -> list[list[str]]:
    """Pairs of tokens to merge, one per line; the first line may be a comment."""
    lines = read_text(file).replace("\r\n", "\n").split("\n")
    merges = []
    for number, line in enumerate(lines, 1):
        pair = line.split(" ")
        if number == 1 and line.startswith("#version"):
            continue
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
