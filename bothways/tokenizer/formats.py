"""Where tokenizer files are and of which kind: BERT's own (files.py), byte-level BPE, or Unigram."""

import json
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from bothways.errors import InputError, MissingFile, shorten
from bothways.tokenizer import files, sentencepiece
from bothways.tokenizer.files import TokenizerData, read_json, read_text
from bothways.tokenizer.json_models import (
    BYTE_LEVEL_SPACE,
    DECODERS,
    GENERIC_CLASS,
    METASPACE,
    ROLES,
    added_tokens,
    special_token_name,
    template_processing,
)
from bothways.tokenizer.library import LibraryBackend
from bothways.tokenizer.regexes import check_patterns

# The first that a directory has is read.
FILE_NAMES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
ROBERTA, DEBERTA = "RobertaTokenizer", "DebertaTokenizer"  # transformers' classes
# Those that read a file as we do, without Tokenizer or TokenizerFast; others have files of the same name.
ANY_KIND = ("", "PreTrained", "TokenizersBackend")
READ_AS_WE_DO = {
    "vocab.txt": (
        *ANY_KIND, "Bert", "DistilBert", "Electra", "MobileBert", "SqueezeBert", "ConvBert", "LayoutLM", "Funnel",
        "Lxmert", "RetriBert", "Realm", "Splinter", "DPRQuestionEncoder", "DPRContextEncoder", "DPRReader",
    ),
    "vocab.json": (*ANY_KIND, "Roberta", "Longformer", "Deberta", "Bart", "LED", "GPT2"),
}  # fmt: skip


def load(path: str | PathLike[str]) -> TokenizerData:
    """A tokenizer file, or a directory that holds one. InputError names what is wrong with it, or its kind."""
    file = Path(path)
    if file.is_dir():
        found = [file / name for name in FILE_NAMES if (file / name).exists()]
        if not found:
            raise MissingFile(f"{file}: no {', '.join(FILE_NAMES[:-1])} or {FILE_NAMES[-1]} there; name what has one")
        file = found[0]
    if file.suffix == ".model":
        content, config = sentencepiece.content(file, _config(file.parent))
        return _library(_with_added(content, file.parent), config, file)
    if file.name in ("vocab.json", "merges.txt"):
        _refuse_other_classes(file, "vocab.json")
        config = _config(file.parent)
        content = _byte_level(file.parent, config)
        if content["post_processor"]["type"] == "RobertaProcessing":
            config = {"tokenizer_class": ROBERTA, **config}
        else:  # transformers' class for DeBERTa puts two separators between texts
            config["tokenizer_class"] = f"{GENERIC_CLASS}Fast"
        return _library(_with_added(content, file.parent), config, file)
    if file.suffix != ".json":
        _refuse_other_classes(file, "vocab.txt")
        return files.read_vocab_txt(file)
    content = read_json(file)
    model = {"type": _kind(files.get_object(content, "model", file)), **files.get_object(content, "model", file)}
    if model["type"] == "WordPiece":
        return files.read_bert_json(content, file)
    return _library({**content, "model": model}, _config(file.parent), file)


def _refuse_other_classes(file: Path, kind: str) -> None:
    """InputError where tokenizer_config.json, or else config.json, beside the file names a class that reads such files
    in another way."""
    config, beside = _config(file.parent), file.parent / "config.json"
    told = config.get("tokenizer_class") or (read_json(beside) if beside.exists() else {}).get("tokenizer_class")
    name = str(told or "").removesuffix("Fast").removesuffix("Tokenizer")
    inside = [key for key in ("word_tokenizer_type", "subword_tokenizer_type") if config.get(key)]
    if name not in READ_AS_WE_DO[kind] or inside:
        known = ", ".join(f"{name}Tokenizer" for name in READ_AS_WE_DO[kind][len(ANY_KIND) :][:3])
        raise InputError(
            f"{file}: a vocabulary of {shorten(told or inside[0])}, which is not supported; one of {known} is"
        )


def _kind(model: dict[str, Any]) -> str:
    """What a model is whose file, of before 2021, does not say it (roberta-base, xlm-roberta-base)."""
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "none"


def _library(content: dict[str, Any], config: dict[str, Any], file: Path) -> TokenizerData:
    """The content of a tokenizer.json of another kind than BERT's."""
    mark, vocab = _mark(content, file), _vocab(content, file)
    try:
        check_patterns(*map(content.get, ("normalizer", "pre_tokenizer", "decoder")))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    kept = json.dumps({**content, "truncation": None, "padding": None})  # a text is never cut or filled up in silence
    try:
        return TokenizerData(vocab, {"backend": LibraryBackend(kept, vocab, mark, config)}, file)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _mark(content: dict[str, Any], file: Path) -> str:
    """What stands for the space before a word, which tells the two kinds; InputError for all others."""
    kind = files.get_object(content, "model", file).get("type", "none")
    splitter = files.get_object(content, "pre_tokenizer", file)
    parts = splitter.get("pretokenizers")
    parts = parts if isinstance(parts, list) else [splitter]
    signs = {str(part.get("type")): part.get("replacement") for part in parts if isinstance(part, dict)}
    if kind == "BPE" and "ByteLevel" in signs:
        return BYTE_LEVEL_SPACE
    if kind == "Unigram" and signs.get("Metaspace") == METASPACE:
        return METASPACE
    raise InputError(
        f"{file}: tokenizer model {shorten(kind)} with pre_tokenizer {shorten(', '.join(signs))} is not supported; "
        "WordPiece (BERT), byte-level BPE (RoBERTa) and Unigram (ALBERT, XLM-RoBERTa) are"
    )


def _vocab(content: dict[str, Any], file: Path) -> dict[str, int]:
    """Entry -> id, those of added_tokens as well."""
    known = content["model"].get("vocab")
    if not known:
        raise InputError(f"{file}: model has no vocab; fetch or write the file again")
    try:
        vocab = dict(known) if isinstance(known, dict) else {piece: index for index, (piece, _) in enumerate(known)}
        vocab |= {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{file}: vocab must hold entries with ids or scores, and added_tokens content and id; write the file again"
        ) from None
    return files.check_vocab(vocab, file)


def _byte_level(directory: Path, config: dict[str, Any]) -> dict[str, Any]:
    """vocab.json and merges.txt, RoBERTa's form or DeBERTa's, as the content of a tokenizer.json."""
    vocab = read_json(directory / "vocab.json")
    names = {role: special_token_name(role, config, vocab) for role in ROLES}
    if missing := [name for name in names.values() if type(vocab.get(name)) is not int]:
        raise InputError(
            f"{directory / 'vocab.json'}: lacks {', '.join(map(shorten, missing))}; each is needed, with its id"
        )
    spaces = {"add_prefix_space": config.get("add_prefix_space", False), "trim_offsets": True}
    cls, sep = ([names[role], vocab[names[role]]] for role in ("cls", "sep"))
    frame: dict[str, Any] = {"type": "RobertaProcessing", "sep": sep, "cls": cls, **spaces}
    if names["cls"] == "[CLS]" and str(config.get("tokenizer_class", DEBERTA)).removesuffix("Fast") in (
        DEBERTA,
        GENERIC_CLASS,
    ):
        frame = template_processing(names["cls"], names["sep"], vocab, separators=1, second=1)
    return {
        "version": "1.0",
        "added_tokens": added_tokens({name: vocab[name] for name in names.values()}, mask=names["mask"]),
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **spaces, "use_regex": True},
        "post_processor": frame,
        "decoder": DECODERS[BYTE_LEVEL_SPACE],
        "model": {"type": "BPE", "vocab": vocab, "merges": _merges(directory / "merges.txt")},
    }


def _merges(file: Path) -> list[list[str]]:
    """Two entries a line, which become one; the first line may be a comment."""
    lines = read_text(file).replace("\r\n", "\n").split("\n")
    merges = []
    for number, line in enumerate(lines, 1):
        pair = line.split(" ")
        if number == 1 and line.startswith("#version"):
            continue
        if len(pair) == 2 and all(pair):
            merges.append(pair)
        elif line:
            raise InputError(
                f"{file}:{number}: {shortened(line)} is no merge; each line has two entries with a space between"
            )
    return merges


def _config(directory: Path) -> dict[str, Any]:
    """tokenizer_config.json, and the special tokens named in special_tokens_map.json, where these are."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (directory / name).exists():
            found |= read_json(directory / name)
    told = files.read_flags(found, directory / "tokenizer_config.json")
    return {key: value for key, value in found.items() if key in told or key not in files.FLAGS}


def _with_added(content: dict[str, Any], directory: Path) -> dict[str, Any]:
    """With the entries of an added_tokens.json, which stands beside older files."""
    if not (directory / "added_tokens.json").exists():
        return content
    listed = {token["content"] for token in content["added_tokens"]}
    more = read_json(directory / "added_tokens.json").items()
    added = [{"content": token, "id": index, "normalized": True} for token, index in more if token not in listed]
    return {**content, "added_tokens": [*content["added_tokens"], *added]}
