"""The text of `bothways VERB --help`: tyro's, with the options in groups and an example at the end."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TextIO

from bothways.tasks import TASKS

FEW = 8  # options of a verb that stay in one group
OPTIONS, OTHER = "options", "other"  # titles: of tyro's box, and of the group of all flags that are not listed here
GROUPS = {
    "data": "train dev test unlabelled heldout heldout-examples text pair text-column pair-column label-column "
    "group-column words-column tags-column negative-column scheme documents drop-duplicates merge-labels encoding "
    "language on-error token-store folds predictions with texts glob filter remove",
    "task": "how fast objective pairs masking mask-rate final-mask-rate multi-label class-weights calibrate teacher "
    "alpha temperature for relations relation-heads relation-layer hidden-states attention last-state logits vectors "
    "passage-vectors max-answer-tokens matryoshka-dims dimensions speed parts drop-layers cuts best "
    "cloze words",
    "model": "model base static encoder tag classify answer question rerank family from size extend-vocab "
    "lengthen tokenizer vocab-size vocabulary-from alphabet "
    "lowercase strip-accents keep-accents layers keep-layers hidden-size intermediate-size start student pooling "
    "window-pooling max-length long-length long-examples window overlap long context initializer-range local-init "
    "word-vectors frequency-bias",
    "training": "recipe steps minutes epochs seed seeds batch-tokens batch-size gradient-accumulation learning-rate "
    "muon-learning-rate schedule warmup decay layer-decay weight-decay beta2 max-grad-norm dropout freeze linear-start "
    "train-windows adapter rank lora-alpha lora-maps adapter-size bottlenecks added-rows quantize",
    "evaluation": "metric positive baselines evaluations-per-epoch evaluate-every patience keep-seed "
    "tolerance max-drop",
    "output": "out files-with-matches color resume checkpoint-every keep-checkpoints tensorboard keep-columns "
    "top coverage label-next normalize escape-formulas to int8 word-bits layer-bits round clear dry-run json",
    "limits": "max-requests queue-tokens max-body max-texts max-text-tokens read-timeout grace",
    "machine": "store host port api-key-file auth allow-host max-wait access-log device dtype processes workers mixed "
    "ray compile shard deterministic watts",
}
GROUP_BY_FLAG = {flag: group for group, flags in GROUPS.items() for flag in flags.split()}
EXAMPLES = {  # by verb, its arguments
    **{f"finetune {name}": task.example for name, task in TASKS.items() if task.is_trained},
    "demo": "--minutes 3",
    "vocab": "corpus.txt -o my-tokenizer",
    "pretrain": "text/ -o my-bert --model mini --minutes 60",
    "distill": "my-bert text/ -o my-student --layers 3 --minutes 60",
    "predict": "my-classifier texts.csv --keep-columns id,text -o labels.csv",
    "fill": 'my-bert "The [MASK] chased the cat."',
    "embed": "my-bert texts.jsonl -o vectors.npy",
    "index": "documents -o my-index",
    "search": '"which invoices mention late fees" documents',
    "extract": "documents --tag my-tagger -o facts.parquet",
    "mcp": "my-index",
    "evaluate": "my-classifier test.csv",
    "quantize": "my-classifier --with my-texts.csv -o my-classifier-int8",
    "shrink": "my-classifier --with reviews.csv --max-drop 1 -o my-fast-classifier",
    "prune": "my-classifier --with reviews.csv --size 0.5 -o my-small-classifier",
    "merge": "my-adapter -o my-classifier",
    "pack": "my-bert -o my-bert-packed",
    "unpack": "bothways-en -o bothways-en",
    "export": "my-classifier -o my-classifier-onnx",
    "serve": "my-embedder --port 8080",
    "info": "my-classifier",
    "cache": "--clear",
}


class _Captured(StringIO):
    """Captures a text for a stream: tyro chooses colours and line characters as for the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream

    def isatty(self) -> bool:
        return self.stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        # tyro compares with "utf-8".
        return (getattr(self.stream, "encoding", None) or "utf-8").lower()


@contextmanager
def arranged_help(verb: str) -> Iterator[None]:
    """Arrange the help that is printed inside the block."""
    captured = _Captured(sys.stdout)
    try:
        with redirect_stdout(captured):
            yield
    finally:
        if text := captured.getvalue():
            sys.stdout.write(arrange(text, verb))


def arrange(text: str, verb: str) -> str:
    """tyro's help with its box of options divided into groups, and an example."""
    lines = text.rstrip("\n").split("\n")
    first = next((row for row, line in enumerate(lines) if _plain(line).startswith(f"╭─ {OPTIONS} ─")), None)
    if first is not None:
        last = next(row for row in range(first, len(lines)) if _plain(lines[row]).startswith("╰"))
        lines[first : last + 1] = _divide(lines[first : last + 1])
    if example := EXAMPLES.get(verb):
        lines += ["", f"example: bothways {verb} {example}"]
    return "\n".join(lines) + "\n"


def _divide(box: Sequence[str]) -> list[str]:
    """The box of all options as a box for each group. Entries keep their order."""
    entries: list[tuple[str, list[str]]] = []  # (group, lines)
    for line in box[1:-1]:
        if _plain(line).startswith("│ -"):
            flags = re.findall(r"--([a-z][a-z0-9-]*)", _plain(line))
            entries.append((next((GROUP_BY_FLAG[flag] for flag in flags if flag in GROUP_BY_FLAG), OTHER), []))
        entries[-1][1].append(line)
    if len(entries) <= FEW:
        return [*box]
    boxes = []
    for group in (*GROUPS, OTHER):
        if lines := [line for name, lines in entries if name == group for line in lines]:
            boxes += [_rename(box[0], group), *lines, box[-1]]
    return boxes


def _rename(top: str, group: str) -> str:
    """The top line of the box with another title."""
    rule = "─" * (len(re.findall("─*╮", top)[0]) - 1 + len(OPTIONS) - len(group))
    return re.sub("─*╮", f"{rule}╮", top.replace(OPTIONS, group))


def _plain(line: str) -> str:
    """The line without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line)
