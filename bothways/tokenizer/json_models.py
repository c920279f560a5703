"""Components of a tokenizer.json (BPE, Unigram): decoders, special tokens, template."""

from collections.abc import Mapping
from typing import Any

# The symbol for the space before a word: a byte's symbol in byte-level BPE, SentencePiece's in Unigram.
BYTE_LEVEL_SPACE, METASPACE = "Ġ", "▁"
DECODERS = {
    BYTE_LEVEL_SPACE: {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    METASPACE: {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": True},
}
ROLES = {  # role -> usual names of the special token; in the order of SPECIAL_TOKENS
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]"),
}

GENERIC_CLASS = "PreTrainedTokenizer"  # transformers' class that uses a tokenizer.json without changes


def special_token_name(role: str, config: Mapping[str, Any], vocab: Mapping[str, int]) -> str:
    """The special token for a role such as "mask": that of the config, else a usual name in the vocabulary."""
    token = config.get(f"{role}_token")
    token = token.get("content") if isinstance(token, dict) else token
    return str(token or next((name for name in ROLES[role] if name in vocab), ROLES[role][0]))


def template_processing(
    cls: str, sep: str, ids: Mapping[str, int], *, num_separators: int, second_segment: int
) -> dict[str, Any]:
    """The post_processor that adds [CLS] and [SEP]. num_separators, second_segment: see BertBackend."""

    def special(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    start = [special(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": [*start, special(sep, 0)],
        "pair": [
            *start,
            *[special(sep, 0)] * num_separators,
            {"Sequence": {"id": "B", "type_id": second_segment}},
            special(sep, second_segment),
        ],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (cls, sep)},
    }


def added_tokens(ids: Mapping[str, int], *, mask: str) -> list[dict[str, Any]]:
    """The added_tokens of a tokenizer.json. The mask includes the space before it (lstrip)."""
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    ordered = sorted(ids.items(), key=lambda entry: entry[1])
    return [{"id": index, "content": token, "lstrip": token == mask, **flags} for token, index in ordered]
