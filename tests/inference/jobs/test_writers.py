"""Writers that append block by block, and the files they produce."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bothways.base.io import to_json
from bothways.inference.jobs import writers
from bothways.inference.jobs.writers import JsonLines, Npy, Parquet, vector_column

HALF = "a\ud800b\ude00c"


def made(form, file, *blocks):
    """The complete file of blocks, each (numbers, results)."""
    file.write_bytes(form.head() + b"".join(piece for block in blocks for piece in form.block(*block)))
    return form.complete(file, sum(len(numbers) for numbers, _ in blocks))


def test_a_line_of_json_is_plain_text_and_reads_back_even_with_half_a_surrogate_pair():
    assert to_json({"a": "é \u65e5"}) == '{"a": "é \u65e5"}'
    assert json.loads(to_json({"a": HALF}).encode()) == {"a": HALF}


def test_in_a_parquet_half_a_surrogate_pair_is_one_sign_wherever_it_stands(tmp_path):
    form = Parquet({"id": str, "entities": [{"text": str}]})
    file = made(form, tmp_path / "p", ([4], [{"id": HALF, "entities": [{"text": HALF}, {"text": "é"}]}]))
    whole = "a\ufffdb\ufffdc"
    assert pyarrow.parquet.read_table(file).to_pylist() == [
        {"row": 4, "id": whole, "entities": [{"text": whole}, {"text": "é"}]}
    ]


def test_types_of_columns_are_those_of_arrow(tmp_path):
    scores = {"a": float, "b": float}
    form = Parquet({"n": int, "s": scores, "m": (str, float), "l": [str], "k": pyarrow.uint8()}, "f.csv")
    row = {"n": 7, "s": {"a": 0.5, "b": 0.25}, "m": {"x": 1.0}, "l": ["y"], "k": 3}
    table = pyarrow.parquet.read_table(made(form, tmp_path / "p", ([4], [row])))
    assert table.schema.types == [
        pyarrow.int64(),
        pyarrow.string(),
        pyarrow.int64(),
        pyarrow.struct(dict.fromkeys("ab", pyarrow.float64())),
        pyarrow.map_(pyarrow.string(), pyarrow.float64()),
        pyarrow.list_(pyarrow.string()),
        pyarrow.uint8(),
    ]
    assert table.to_pylist() == [{"row": 4, "file": "f.csv", **row, "m": [("x", 1.0)]}]


def test_nine_digits_represent_every_float32(tmp_path):
    values_NW = np.random.default_rng(3).integers(0, 2**32, (137, 29), dtype=np.uint32).view(np.float32)
    values_NW = np.where(np.isfinite(values_NW), values_NW, np.float32(0.1))
    lines = made(JsonLines(), tmp_path / "v", (range(137), values_NW)).read_text().splitlines()
    read_NW = np.array([json.loads(line)["vector"] for line in lines], np.float32)
    assert np.array_equal(read_NW.view(np.uint32), values_NW.view(np.uint32))


def test_a_header_of_npy_has_room_for_any_number_of_rows():
    form = Npy(768)
    assert len({len(form._header(10**digits)) for digits in range(20)}) == 1


def test_blocks_share_row_groups_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "ROW_GROUP", 3 * 11 * (7 * 4 + 8))
    blocks = [(range(11 * n, 11 * n + 11), np.full((11, 7), n, np.float32)) for n in range(8)]
    file = pyarrow.parquet.ParquetFile(made(Parquet(vector_column(7)), tmp_path / "v", *blocks))
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [33, 33, 22]
    assert file.read()["row"].to_pylist() == [*range(88)]


def test_a_parquet_that_cannot_be_completed_leaves_its_blocks_and_nothing_else(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        made(Parquet(vector_column(7)), tmp_path / "v", ([0], np.zeros((1, 7), np.float32)))
    assert [place.name for place in tmp_path.iterdir()] == ["v"]
