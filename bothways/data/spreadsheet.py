"""Rows of an Excel workbook (.xlsx), read by python-calamine (extra `xlsx`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from bothways.errors import InputError

XLSX = ".xlsx"
LARGEST_WORKBOOK = 1 << 30  # bytes of a workbook, decompressed


def sheet_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """(row number, cells) for every non-empty row of the only visible sheet with rows.

    Empty cells are ""; whole numbers are int. InputError if several sheets have rows, if the file is not a workbook, or
    without python-calamine.
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
            names = [
                metadata.name for metadata in workbook.sheets_metadata if metadata.visible == SheetVisibleEnum.Visible
            ]
            sheets = [sheet for sheet in map(workbook.get_sheet_by_name, names) if sheet.total_height]
            if len(sheets) > 1:
                listed = ", ".join(repr(sheet.name) for sheet in sheets)
                raise InputError(
                    f"{path}: several sheets have rows ({listed}); save the one to read as a separate file"
                )
            for row_number, cells in enumerate(sheets[0].iter_rows() if sheets else (), 1):
                if any(cell != "" for cell in cells):
                    yield row_number, [_shown(cell) for cell in cells]
    except CalamineError as error:
        raise InputError(f"{path}: not a readable workbook ({error}); save it again, without a password") from None


def _check_size(path: Path) -> None:
    try:
        with ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (BadZipFile, OSError) as error:
        raise InputError(f"{path}: not a readable workbook ({error}); save it again as .xlsx") from None
    if size > LARGEST_WORKBOOK:
        raise InputError(
            f"{path}: {size >> 20:,} MiB decompressed, of {LARGEST_WORKBOOK >> 20:,} at most; save it as .csv"
        )


def _shown(cell: Any) -> Any:
    """A cell with whole numbers as int; Excel stores every number as a float."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
