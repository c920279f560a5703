"""The output of the verbs of search: results as text or as JSON."""

import sys

from bothways.base.errors import format_count
from bothways.base.terminal import print_json, print_lines
from bothways.search.commands import SearchResult, summary, unread_summary
from bothways.search.extraction import Extracted
from bothways.search.hits import print_hits
from bothways.search.indexing import Indexed
from bothways.settings.search import Extract, Index, Search


def index(settings: Index, result: Indexed) -> None:
    if settings.json:
        print_json(result.as_json())
    else:
        print_lines(f"{summary(result)}, in {result.store}")


def extract(settings: Extract, result: Extracted) -> None:
    if settings.json:
        print_json({**vars(result), "out": str(result.out)})
        return

    facts = format_count(result.facts, "fact")
    files = format_count(result.files, "file")
    skipped = f"; {format_count(len(result.skipped), 'file')} skipped" if result.skipped else ""
    print_lines(f"{facts} of {files} in {result.out}{skipped}{unread_summary(result.unread)}")
    print_lines(*(f"{count:8,}  {name:12} {group}" for name, group, count in result.common))


def search(settings: Search, result: SearchResult) -> None:
    is_printed = print_hits(
        result,
        settings.query,
        json=settings.json,
        only_files=settings.files_with_matches,
    )
    if not is_printed:
        sys.exit(1)  # as grep
