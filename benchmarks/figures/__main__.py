"""Compute every score of README.md and the documentation from docs/measurements, and compare: `make figures`.

    python -m benchmarks.figures [--write] [--tables]

It fails, and names file, line and right value, where a page says another number; where a table is neither written from
a measurement nor named in docs/measurements/pages.toml with the reason; and where the folder is over 6 MB. It also
names the figures of speed in README.md that are older than the code that they measure. --write: write the tables into
the pages. --tables: print for each table what it is written from, or the reason why not.
"""

import argparse
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.figures import (
    classical,
    decide,
    decide_examples,
    english,
    explain,
    few_examples,
    label_errors,
    label_next,
    out_of_scope,
    reindex,
    search,
    search_scores,
    verdicts,
)
from benchmarks.figures.pages import (
    PageTable,
    lines_with,
    read_pages,
    tables_of,
    with_tables,
    wrong_cells,
    wrong_numbers,
)
from benchmarks.figures.scores import Figures, Table
from benchmarks.measurements import FOLDER, MOST_BYTES, ROOT, Measurement, git, read

MEASUREMENTS: Mapping[str, Callable[[Measurement], Figures]] = {
    "few-examples": few_examples.figures,
    "english-vectors": english.vectors,
    "english-words": english.words,
    "english-next": english.next_sentence,
    "english-fills": english.fills,
    "decide": decide.figures,
    "out-of-scope": out_of_scope.figures,
    "explain": explain.figures,
    "explain-time": explain.time,
    "search": search.figures,
    "search-scores": search_scores.figures,
    "reindex": reindex.figures,
    "label-errors": label_errors.of_training,
    "label-errors-messages": label_errors.of_messages,
    "label-errors-rare": label_errors.of_rare_classes,
    "label-next": label_next.figures,
    "verdicts": verdicts.figures,
    "decide-examples": decide_examples.figures,
    "classical": classical.figures,
}
COVERED = "computed: each row is a sentence of pages.toml, or named there"


@cache
def computed() -> tuple[dict[str, float], dict[str, Table]]:
    """All values and all tables, by MEASUREMENT/NAME."""
    values: dict[str, float] = {}
    tables: dict[str, Table] = {}
    for name, figures_of in MEASUREMENTS.items():
        figures = figures_of(read(name))
        values |= {f"{name}/{key}": value for key, value in figures.values.items()}
        tables |= {f"{name}/{key}": table for key, table in figures.tables.items()}
    return values, tables


class Check:
    """The pages beside the measurements.

    texts: the text of each page, by its path.
    described: docs/measurements/pages.toml.
    """

    def __init__(self, texts: Mapping[str, str], described: Mapping[str, Any]) -> None:
        self.texts = texts
        self.described = described
        self.values, self.tables = computed()

    def mistakes(self) -> Iterator[str]:
        for page, text in self.texts.items():
            for table in tables_of(text):
                yield from self.mistakes_of(page, table)
            for template in self.sentences(page):
                yield from wrong_numbers(page, text, template, self.values)
            headings = {table.heading for table in tables_of(text) if not table.source}
            for heading in self.described["tables"].get(page, {}):
                if heading not in headings:
                    yield f"docs/measurements/pages.toml: {page} has no such table: {heading}"

        size = sum(file.stat().st_size for file in FOLDER.iterdir())
        if size > MOST_BYTES:
            yield f"docs/measurements: {size / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:.0f} are allowed"

    def sentences(self, page: str) -> list[str]:
        return list(self.described["sentences"].get(page, []))

    def mistakes_of(self, page: str, table: PageTable) -> Iterator[str]:
        if table.source:
            if table.source in self.tables:
                yield from wrong_cells(page, table, self.tables[table.source])
            else:
                yield f"{page}:{table.line}: no measurement has a table {table.source}"
            return
        if page not in self.described["tables"]:
            return

        reason = self.described["tables"].get(page, {}).get(table.heading)
        if reason is None:
            yield (
                f"{page}:{table.line}: a table under {table.heading!r} that nothing computes: write it from a "
                "measurement, or name it in docs/measurements/pages.toml with the reason"
            )
        elif isinstance(reason, dict):
            yield from self.rows_without_reason(page, table, reason)

    def rows_without_reason(self, page: str, table: PageTable, reasons: Mapping[str, str]) -> Iterator[str]:
        """Rows that are neither on the lines of a sentence nor named."""
        computed_lines = set[int]().union(*(lines_with(self.texts[page], one) for one in self.sentences(page)))
        for number, line in enumerate(table.lines[2:], table.line + 2):
            if number not in computed_lines and not any(begin in line for begin in reasons):
                yield f"{page}:{number}: a row that no sentence of pages.toml computes: {line.strip()}"

    def coverage(self) -> Iterator[str]:
        """A line for each table: what it is written from, or the reason why not."""
        reasons = self.described["reasons"]
        for page, text in self.texts.items():
            for table in tables_of(text):
                if not table.source and page not in self.described["tables"]:
                    continue
                reason = self.described["tables"].get(page, {}).get(table.heading, "")
                told = COVERED if isinstance(reason, dict) else f"not computed: {reasons.get(reason, reason)}"
                yield f"{page}:{table.line}: {table.heading}: {table.source or told}"


def old_speeds(described: Mapping[str, Any]) -> Iterator[str]:
    """The figures of speed in README.md whose code has changed since they were measured.

    The date and the code are those of the benchmark's file, if [speeds] names one.
    """
    for name, speed in described["speeds"].items():
        about = read(speed["file"]).about if "file" in speed else speed
        day = about["date"]
        try:
            changed = git("log", "-1", "--format=%cs", f"--since={day} 23:59:59", "--", *about["measures"])
        except (OSError, subprocess.CalledProcessError):
            yield "(no history of the code here, so the age of figures of speed is not known)"
            return
        if changed:
            yield f"README.md: {name}: measured on {day}, its code changed on {changed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    parser.add_argument("--tables", action="store_true", help="print what each table is written from")
    options = parser.parse_args()
    described = tomllib.loads((FOLDER / "pages.toml").read_text(encoding="utf-8"))
    texts = read_pages(ROOT)
    check = Check(texts, described)
    if options.write:
        for page, text in texts.items():
            Path(ROOT / page).write_text(with_tables(text, check.tables), encoding="utf-8")
        check = Check(read_pages(ROOT), described)
    if options.tables:
        print("\n".join(check.coverage()))

    for line in old_speeds(described):
        print(f"older than its code: {line}")
    if mistakes := [*check.mistakes()]:
        raise SystemExit("\n".join(mistakes))
    written = sum(bool(table.source) for text in check.texts.values() for table in tables_of(text))
    print(f"{written} tables and {sum(len(check.sentences(page)) for page in texts)} sentences are as measured")


if __name__ == "__main__":
    main()
