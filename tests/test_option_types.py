"""`FineTuneOptions`, from which type checkers know the options of `bothways.finetune`, has those of the settings."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bothways.settings.conversion import declared_types
from bothways.settings.fields import AnyPath
from bothways.settings.tables_in_memory import MemoryTable, Table
from bothways.tasks import TASKS

FILE = Path(__file__).parent.parent / "bothways/settings/finetune_options.py"
NAMED = ("train", "model", "out")  # arguments of `finetune`
HEAD = '''"""Options of `bothways.finetune` for type checkers, written by `python tests/test_option_types.py`."""

from collections.abc import Iterable
from typing import Literal, TypedDict

from bothways.settings.fields import AnyPath
from bothways.settings.tables_in_memory import Table


class FineTuneOptions(TypedDict, total=False):
    """Settings of the tasks of fine-tuning. `bothways.settings` has their meaning and defaults."""

'''


def accepted(held: Any) -> Iterator[str]:
    """The parts of the union of what a constructor accepts for a field of this type."""
    if get_origin(held) in (Union, UnionType):
        parts = get_args(held)
        for part in [MemoryTable] if MemoryTable in parts else [part for part in parts if part is not NoneType]:
            yield from accepted(part)
        if NoneType in parts:
            yield "None"
    elif get_origin(held) is tuple:
        item = " | ".join(accepted(get_args(held)[0]))
        yield from ([item] if item in ("Table", "AnyPath") else []) + [f"Iterable[{item}]"]
    elif get_origin(held) is Literal:
        yield f"Literal[{', '.join(map(repr, get_args(held)))}]"
    else:
        yield {MemoryTable: "Table", Path: "AnyPath"}.get(held) or held.__name__


def option_types() -> dict[str, str]:
    parts: dict[str, dict[str, None]] = {}
    for task in (task for task in TASKS.values() if task.is_trained):
        for option, held in declared_types(task.settings_class).items():
            if option not in NAMED:
                parts.setdefault(option, {}).update(dict.fromkeys(accepted(held)))
    return {option: " | ".join(sorted(types, key=lambda one: one == "None")) for option, types in parts.items()}


def test_options_of_finetune_for_type_checkers_are_those_of_the_settings():
    from bothways.settings.finetune_options import FineTuneOptions

    names = {"Iterable": Iterable, "Literal": Literal, "Table": Table, "AnyPath": AnyPath}
    expected = {option: eval(types, names) for option, types in option_types().items()}
    assert get_type_hints(FineTuneOptions) == expected, "python tests/test_option_types.py rewrites the file"


if __name__ == "__main__":
    FILE.write_text(HEAD + "".join(f"    {option}: {types}\n" for option, types in option_types().items()))
    subprocess.run([sys.executable, "-m", "ruff", "format", FILE], check=True)
