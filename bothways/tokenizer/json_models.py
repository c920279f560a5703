"""Byte-level BPE and Unigram in the words of a tokenizer.json: what stands for spaces, and which tokens are special."""

from collections.abc import Mapping
from typing import Any

# What stands for the space before a word: in byte-level BPE the byte itself under another name, in Unigram a sign.
BYTE_LEVEL_SPACE, METASPACE = "Ġ", "▁"
DECODERS = {
    BYTE_LEVEL_SPACE: {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    METASPACE: {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": True},
}
ROLES = {  # of special tokens, as transformers names them, and their usual names, in the order of SPECIALS
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]"),
}

GENERIC_CLASS = "PreTrainedTokenizer"  # transformers' class that follows a tokenizer.json to the letter


def special_token_name(role: str, config: Mapping[str, Any], vocab: Mapping[str, int]) -> str:
    """The special token of a role, such as mask: as the configuration names it, else the usual one that is there."""
    given = config.get(f"{role}_token")
    given = given.get("content") if isinstance(given, dict) else given
    return str(given or next((token for token in ROLES[role] if token in vocab), ROLES[role][0]))


def template_processing(
    before: str, behind: str, ids: Mapping[str, int], *, separators: int, second: int
) -> dict[str, Any]:
    """What stands before a text and behind it, as a tokenizer.json says it. separators, second: see BertBackend."""

    def special(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    begun = [special(before, 0), {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": [*begun, special(behind, 0)],
        "pair": [
            *begun, *[special(behind, 0)] * separators, {"Sequence": {"id": "B", "type_id": second}},
            special(behind, second),
        ],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (before, behind)},
    }  # fmt: skip


def added_tokens(ids: Mapping[str, int], *, mask: str) -> list[dict[str, Any]]:
    """Special tokens as a tokenizer.json lists them. A mask stands for the space before it too."""
    plain = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    listed = sorted(ids.items(), key=lambda entry: entry[1])
    return [{"id": index, "content": token, "lstrip": token == mask, **plain} for token, index in listed]
