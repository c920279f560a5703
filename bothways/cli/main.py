"""The command line `bothways VERB ...`: options come from the settings, verbs from verbs.py.

Results go to standard output, everything else to standard error. Exit status 0: success; 1: failure, with one line
that explains it; 2: wrong usage, or a device that is not available; 130: stopped by Ctrl-C or SIGTERM. Other words that
people type for a verb lead to it.
"""

import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, UsageError, command_line
from bothways.base.log import is_main_process, messages_to
from bothways.base.terminal import print_lines, print_message
from bothways.cli.parser import parse
from bothways.cli.verbs import GROUPS, VERBS
from bothways.pretrained import DEFAULT
from bothways.settings.options import options
from bothways.tasks import TASKS
from bothways.training.signals import Stopped


def entry() -> None:
    """Run `main` as a program. With several processes, each exits without Python's shutdown, in which a gloo thread
    that still holds a tensor could abort the process."""
    # SIGTERM raises KeyboardInterrupt like Ctrl-C, so that unfinished files and directories are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status: Any = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()

    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        sys.stderr.flush()
        os._exit(status or 0)
    sys.exit(status)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line. For invalid input or a disk error, prints one line and exits with status 1, for
    a UsageError with 2, after Ctrl-C or SIGTERM with 130."""
    with command_line():
        _main(arguments)


def _main(arguments: Sequence[str] | None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()

    name = ""
    status = 0
    try:
        try:
            name, options = _split_verb(words)
            if name:
                status = _run(name, options)
        finally:
            sys.stdout.flush()  # find a closed pipe or a full disk now, not when Python exits

    except BrokenPipeError:
        _drop_output()
        sys.exit(1)

    except (Stopped, KeyboardInterrupt) as stopped:
        if is_main_process():
            reason = stopped if isinstance(stopped, Stopped) else "stopped"
            print_message(f"{_full_name(name)}: {reason}")
        sys.exit(128 + signal.SIGINT)

    except (InputError, OSError) as error:
        message = " ".join(str(error).split())
        print_message(f"{_full_name(name)}: error: {_with_flags(name, message)}")
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        sys.exit(2 if isinstance(error, UsageError) else 1)

    if status:
        sys.exit(status)


def _prepare_streams() -> None:
    """Make standard output and standard error accept any text; replace closed streams by the null device."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard the buffer of standard output, which Python would fail to write when it exits."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _full_name(verb: str) -> str:
    return f"bothways {verb}".strip()


def _with_flags(verb: str, message: str) -> str:
    """The message, with options that it begins with as they are written here: `host (::)` is `--host (::)`."""
    try:
        settings_class = VERBS[verb].settings_class
    except (KeyError, InputError):  # unknown, or of a package that cannot be imported
        return message
    flags: dict[str, str] = {}
    for option in options(settings_class, with_help=False):
        flags[option.name] = option.flags[-1] if option.flags else option.name
    names = "|".join(flags)
    if not re.match(rf"({names}) \(", message):
        return message

    first = rf"^({names})(?= \()"
    others = rf"(?<=\) and )({names})(?= \()|(?<=\), )({names})(?= \()"
    return re.sub(f"{first}|{others}", lambda match: flags[match[0]], message)


def _split_verb(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The verb and its options; the verb is "" if there is nothing to run. SystemExit if it is unknown."""
    if words and words[0] == "help":  # `help VERB` is `VERB --help`
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print_lines(*overview())
        sys.exit(0 if words else 2)
    if words[0] == "--version":
        import bothways

        print_lines(f"bothways {bothways.__version__}")
        return "", []

    name = words[0]
    options = words[1:]
    if name == "finetune" and options:
        name = f"finetune {options[0]}".strip()
        options = options[1:]
    if name in ("finetune", "finetune -h", "finetune --help"):
        print_lines(*overview("finetune"))
        sys.exit(2 if name == "finetune" else 0)
    if name not in VERBS:
        print_message(f"bothways: {explain_unknown(name)}")
        sys.exit(2)
    return name, options


def _run(name: str, options: Sequence[str]) -> int:
    """Run a verb and print its result. Returns the exit status."""
    try:
        settings = parse(name, options)
    except InputError as error:
        raise UsageError(*error.args) from error

    from bothways.cli.output import print_result

    # Before torch is loaded: threads that sleep while they wait leave the cores to other programs, after some
    # microseconds in which the next operation usually comes (docs/LOG.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    with messages_to(print_message):
        models = [getattr(settings, field, None) for field in ("model", "path")]
        if Path(DEFAULT) in models and DEFAULT not in options and is_main_process():
            print_message(f"no model named: using {DEFAULT}, which comes with Bothways")

        run = VERBS[name].load(name)
        return print_result(run(settings), as_json=getattr(settings, "json", False))


def overview(prefix: str = "") -> list[str]:
    """The text of `bothways --help`: the verbs in groups, one per line. prefix: list only verbs that start with it."""
    lines = ["usage: bothways VERB ..."]
    for group, members in GROUPS.items():
        verbs = [name for name in VERBS if name.split()[0] in members and name.startswith(prefix)]
        if verbs:
            lines += ["", f"{group}:"]
            lines += [f"  {name:18} {VERBS[name].help}" for name in verbs]
    return [*lines, "", "See `bothways VERB --help` for all options."]


# By command, the other words for it. The words of a task are recognized alone and after `finetune`.
TASK_WORDS = {f"finetune {name}": task.words.split() for name, task in TASKS.items() if task.is_trained}
VERB_WORDS = {name: verb.words.split() for name, verb in VERBS.items() if verb.words}
VERB_WORDS["finetune"] = [
    "fine-tune",
    "tune",
    "finetuning",
    "fine-tuning",
    "fit",
    "fewshot",
    "few-shot",
    "setfit",
    "lora",
    "peft",
    "adapter",
    "adapters",
]
# Words of two verbs.
SEVERAL: Mapping[str, Sequence[str]] = {
    "train": ("pretrain", "finetune"),
    "score": ("evaluate", "finetune regress"),
}
# Tasks whose models are used by another verb than `predict`.
USED_BY = {"finetune embed": "embed"}


def explain_unknown(name: str) -> str:
    """A line about an unknown verb: the verb that was probably meant.

    name: one word, or `finetune` and another.
    """
    task = name.lower().replace("_", "-")
    is_task = task.startswith("finetune ")
    word = task.removeprefix("finetune ")
    if is_task and word.startswith("-"):
        tasks = ", ".join(verb.split()[1] for verb in TASK_WORDS)
        return f"finetune needs a task before its options: {tasks}"

    commands = " or ".join(f"`bothways {verb}`" for verb in _meant(word, is_task))
    hint = f" (did you mean {commands}?)" if commands else ""
    return f"unknown verb {name!r}{hint}; available: {', '.join(VERBS.names())} (see bothways --help)"


def _meant(word: str, is_task: bool) -> Sequence[str]:
    """The verbs that were probably meant. Of a task's word alone: the verbs to fine-tune a model and to use it."""
    verbs_by_word: dict[str, Sequence[str]] = {}
    for verb, words in TASK_WORDS.items():
        verbs = (verb,) if is_task else (verb, USED_BY.get(verb, "predict"))
        for task_word in (verb.removeprefix("finetune "), *words):
            verbs_by_word[task_word] = verbs
    if not is_task:
        for verb, words in VERB_WORDS.items():
            for verb_word in words:
                verbs_by_word[verb_word] = (verb,)
        verbs_by_word.update(SEVERAL)

    if word in verbs_by_word:
        return verbs_by_word[word]

    if not is_task:
        names = [verb for verb in (*VERBS, "finetune") if " " not in verb]
        similar_verbs = get_close_matches(word, names, n=1)
        if similar_verbs:
            return similar_verbs

    similar_words = get_close_matches(word, verbs_by_word, n=1, cutoff=0.7)
    return verbs_by_word[similar_words[0]] if similar_words else ()
