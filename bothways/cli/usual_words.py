"""Words that people type for a verb, and the verb that does it."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from bothways.tasks import TASKS
from bothways.verbs import VERBS

# By command, the other words for it. The words of a task are recognized alone and after `finetune`.
TASK_WORDS = {f"finetune {name}": task.words.split() for name, task in TASKS.items() if task.is_trained}
VERB_WORDS = {name: verb.words.split() for name, verb in VERBS.items() if verb.words} | {
    "finetune": "fine-tune tune finetuning fine-tuning fit fewshot few-shot setfit lora peft adapter adapters".split()
}
SEVERAL: Mapping[str, Sequence[str]] = {
    "train": ("pretrain", "finetune"),
    "score": ("evaluate", "finetune regress"),
}  # words of two verbs


def explain_unknown(name: str) -> str:
    """A line about an unknown verb: the verb that was probably meant.

    name: one word, or `finetune` and another.
    """
    task = name.lower().replace("_", "-")
    is_task = task.startswith("finetune ")
    word = task.removeprefix("finetune ")
    if is_task and word.startswith("-"):
        return f"finetune needs a task before its options: {', '.join(verb.split()[1] for verb in TASK_WORDS)}"
    hint = " or ".join(f"`bothways {verb}`" for verb in _meant(word, is_task))
    hint = f" (did you mean {hint}?)" if hint else ""
    return f"unknown verb {name!r}{hint}; available: {', '.join(VERBS)} (see bothways --help)"


def _meant(word: str, is_task: bool) -> Sequence[str]:
    """The verbs that were probably meant. Of a task's word alone: the verbs to fine-tune a model and to use it."""
    task_by_word = {
        other: verb for verb, others in TASK_WORDS.items() for other in (verb.removeprefix("finetune "), *others)
    }
    if is_task:
        verbs_by_word: dict[str, Sequence[str]] = {other: (verb,) for other, verb in task_by_word.items()}
        known: Sequence[str] = ()
    else:
        users = {"finetune embed": "embed"}
        verbs_by_word = {other: (verb, users.get(verb, "predict")) for other, verb in task_by_word.items()}
        verbs_by_word.update({other: (verb,) for verb, others in VERB_WORDS.items() for other in others})
        verbs_by_word.update(SEVERAL)
        known = [verb for verb in (*VERBS, "finetune") if " " not in verb]
    if word in verbs_by_word:
        return verbs_by_word[word]
    if near := get_close_matches(word, known, n=1):
        return near
    return next((verbs_by_word[near] for near in get_close_matches(word, verbs_by_word, n=1, cutoff=0.7)), ())
