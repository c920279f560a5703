"""Cloze classification: a text is classified by the word at the [MASK] of a phrase (Schick & Schuetze 2021).

The phrase is read as the first text and the text as the second: [CLS] It was [MASK]. [SEP] text [SEP]. The head of
masked words becomes a classification head: its layers are the pooler, which reads the state of the mask, and the
vectors of the classes' words are its weights. It gives the same scores as the words, before any training.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.errors import InputError
from bothways.log import escape_line
from bothways.model.checkpoint.contents import Checkpoint, check_plain, with_dropout
from bothways.model.heads import MaskedLMHead, Pooler
from bothways.model.model import Model
from bothways.model.parameters import no_init
from bothways.text.tokenizer.tokenizer import Tokenizer

MASK = "[MASK]"  # in a phrase; the model's own token works as well


def words_by_label(words: Mapping[str, str] | tuple[str, ...], labels: tuple[str, ...]) -> dict[str, str]:
    """The word of each label: named, as LABEL=WORD, or in the order of the labels; without labels, the words are.

    InputError if they do not fit.
    """
    if isinstance(words, Mapping):
        named = dict(words)
    elif words and all("=" in word for word in words):
        named = dict(word.rsplit("=", 1) for word in words)
    else:
        order = labels or words
        if len(words) != len(order):
            raise InputError(f"words ({' '.join(words)}): {len(words)} for {len(order)} labels ({', '.join(order)})")
        named = dict(zip(order, words, strict=True))
    if labels and {*named} != {*labels}:
        raise InputError(f"words names the labels {', '.join(sorted(named))}; the data has {', '.join(labels)}")
    if len({*named.values()}) < 2 or len({*named.values()}) < len(named):
        raise InputError(f"words ({', '.join(named.values())}): each label needs a different one, and two at least")
    return {label: named[label] for label in labels or named}


def with_cloze_head(
    source: Checkpoint, phrase: str, words: Mapping[str, str], *, dropout: float | None = None
) -> Checkpoint:
    """A classifier of texts by the word at the mask of a phrase. words: of each label, one piece of the vocabulary.

    InputError if the model has no head for masked words, or if the phrase or a word does not fit.
    """
    check_plain(source.model)
    old, tokenizer = source.model, source.need_tokenizer()
    config = old.config
    head = old.heads["masked_words"] if "masked_words" in old.num_outputs else None
    if not isinstance(head, MaskedLMHead) or config.direction != "both":
        raise InputError("cloze needs a head for masked words; use a model pre-trained with them, such as bothways-en")
    if config.embedding_size not in (None, config.hidden_size):
        raise InputError(
            f"cloze is not supported for {source.model_type}: its word vectors ({config.embedding_size}) are narrower "
            f"than its hidden states ({config.hidden_size})"
        )
    position = mask_position(tokenizer, phrase)
    ids = [word_id(tokenizer, word) for word in words.values()]
    changes: dict[str, Any] = {"pooling": "first", "pooling_position": position, "pooler_act": config.hidden_act}
    config = config.replace(**changes, pooler_norm=True, pooler_dropout=False, deep_heads=False)
    if dropout is not None:
        config = with_dropout(config, dropout).replace(classifier_dropout=dropout)
    with no_init():
        model = Model(config, {"classes": len(words)})
    assert isinstance(model.pooler, Pooler)
    parts = {"pooler.dense": head.transform, "pooler.norm": head.norm, "encoder": old.encoder}
    state = {f"{name}.{key}": value for name, module in parts.items() for key, value in module.state_dict().items()}
    state["heads.classes.output.weight"] = old.encoder.embeddings.words.weight.detach()[ids]
    state["heads.classes.output.bias"] = head.bias.detach()[ids]
    model.load_state_dict(state)
    metadata = {"cloze": {"phrase": phrase, "words": dict(words)}, "reads_pairs": False}
    return replace(source, model=model.eval(), labels=tuple(words), multi_label=False, pooling=None, metadata=metadata)


def mask_position(tokenizer: Tokenizer, phrase: str) -> int:
    """The index of the mask among the tokens of a text that begins with the phrase."""
    ids = tokenizer.encode_after(phrase, "").ids
    if (count := ids.count(tokenizer.mask_id)) != 1:
        raise InputError(f"cloze ({escape_line(phrase)!r}) must have one {MASK}, not {count}: 'It was {MASK}.'")
    return ids.index(tokenizer.mask_id)


def word_id(tokenizer: Tokenizer, word: str) -> int:
    """The id of a word in the middle of a text. InputError if it is more than one piece, or unknown."""
    ids = tokenizer.ids(word.strip(), leading_space=True)
    if len(ids) != 1 or ids[0] in tokenizer.special_ids:
        pieces = " ".join(tokenizer.tokens[index] for index in ids)
        raise InputError(f"words ({escape_line(word)!r}) is {len(ids)} pieces ({pieces}); choose a word of one piece")
    return ids[0]
