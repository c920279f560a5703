"""Output of the command line: the result of a verb as JSON or as lines."""

from collections.abc import Iterator
from typing import Any

from bothways.base.log import is_main_process
from bothways.base.results import Result
from bothways.base.terminal import print_json, print_lines


def print_result(result: Result | Iterator[list[Any]] | None, *, as_json: bool) -> None:
    """Print the result of a verb, in the main process only.

    result: prints itself. Of a verb whose rows are printed as they come: blocks of rows, which are JSON. None: the verb
        has printed while it ran.
    as_json: print JSON instead of lines for people.
    """
    if result is None or not is_main_process():
        return

    if isinstance(result, Iterator):
        for rows in result:
            print_json(*rows)
    elif as_json:
        print_json(result.to_json())
    else:
        print_lines(*result.lines())
