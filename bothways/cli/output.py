"""Output of the command line: the result of a verb as JSON or as lines."""

from collections.abc import Iterator
from typing import Any

from bothways.base.log import is_main_process
from bothways.base.results import JsonValues, Result
from bothways.base.terminal import print_json, print_lines


def print_result(result: Result | Iterator[list[Any]] | None, *, as_json: bool) -> int:
    """Print the result of a verb, in the main process only. Returns the exit status of the command.

    result: prints itself. Of a verb whose rows are printed as they come: blocks of rows, which are JSON. None: the verb
        has printed while it ran.
    as_json: print JSON instead of lines for people.
    """
    if result is None or not is_main_process():
        return 0

    if isinstance(result, Iterator):
        for rows in result:
            print_json(*rows)
    elif as_json:
        value = result.to_json()
        print_json(*(value if isinstance(value, JsonValues) else [value]))
    else:
        print_lines(*result.lines())
    return getattr(result, "exit_status", 0)
