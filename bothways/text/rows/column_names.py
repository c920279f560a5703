"""Names of columns: which ones a user means, and how they are called in a result."""

from collections.abc import Collection, Iterable, Sequence

from bothways.base.errors import InputError, flag, no_such_column


def missing_column(where: str, column: str, columns: Iterable[str]) -> InputError:
    return no_such_column(where, column, columns, f"rename yours or use {flag('text_column')}")


def match_columns(named: str, columns: Collection[str]) -> tuple[str, ...]:
    """The column of that name, else its comma-separated columns, which are joined; () if one is missing."""
    if named in columns:
        return (named,)
    names = [name if name in columns else name.strip() for name in named.split(",")]
    return tuple(dict.fromkeys(names)) if all(name in columns for name in names) else ()


def rename_columns(names: Sequence[str], taken: Iterable[str]) -> dict[str, str]:
    """The names of input columns in a result, of which `taken` and "row" are the result's own: input_NAME for such a
    name, or the next that is free."""
    names_taken = {"row", *taken}
    kept = dict[str, str]()
    # Columns that keep their names come first.
    for name in sorted(names, key=names_taken.__contains__):
        kept[name] = name
        while kept[name] in names_taken:
            kept[name] = f"input_{kept[name]}"
        names_taken.add(kept[name])
    return {name: kept[name] for name in names}


def join_texts(texts: Iterable[str]) -> str:
    """Join the texts of several columns with line feeds, skipping blank ones."""
    return "\n".join(text for text in texts if text and not text.isspace())
