"""Rows of an Excel workbook (.xlsx), by python-calamine (extra `xlsx`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from bothways.errors import InputError

XLSX = ".xlsx"
LARGEST_WORKBOOK = 1 << 30  # bytes of a workbook, unpacked


def sheet_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """(number, cells) of every row that is not empty of the only sheet with rows, hidden ones aside.

    Empty cells are ""; whole numbers are int, as they are shown. InputError where several sheets have rows, where the
    file is no workbook, and without python-calamine.
    """
    try:
        from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum
    except ImportError:
        raise InputError(
            f"{path}: .xlsx needs the package python-calamine; pip install 'bothways[xlsx]', or save it as .csv"
        ) from None
    _check_size(path)
    try:
        with CalamineWorkbook.from_path(path) as workbook:
            names = [one.name for one in workbook.sheets_metadata if one.visible == SheetVisibleEnum.Visible]
            sheets = [sheet for sheet in map(workbook.get_sheet_by_name, names) if sheet.total_height]
            if len(sheets) > 1:
                there = ", ".join(repr(sheet.name) for sheet in sheets)
                raise InputError(
                    f"{path}: several sheets have rows ({there}); save the one to read as a file of its own"
                )
            for number, cells in enumerate(sheets[0].iter_rows() if sheets else (), 1):
                if any(cell != "" for cell in cells):
                    yield number, [_shown(cell) for cell in cells]
    except CalamineError as error:
        raise InputError(f"{path}: no workbook that can be read ({error}); save it again, without a password") from None


def _check_size(path: Path) -> None:
    try:
        with ZipFile(path) as packed:
            size = sum(part.file_size for part in packed.infolist())
    except (BadZipFile, OSError) as error:
        raise InputError(f"{path}: not a workbook that can be read ({error}); save it again as .xlsx") from None
    if size > LARGEST_WORKBOOK:
        raise InputError(f"{path}: {size >> 20:,} MiB unpacked, of {LARGEST_WORKBOOK >> 20:,} at most; save it as .csv")


def _shown(cell: Any) -> Any:
    """Excel keeps every number as a float."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
