"""The budget of the package: what it measures, and that the package is within it."""

import pytest

from tools import house


@pytest.fixture
def package(tmp_path):
    files = {
        "a/__init__.py": "",
        "a/one.py": "def first():\n    return 1\n\n\nclass C:\n    def second(self):\n        return (\n1)\n",
        "a/two.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.b.three import z\n",
        "b/three.py": "def f():\n    from pack.a import two\nz = 1\n",
        "top.py": "",
        "sample/data.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / "pack" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pack" / name).write_text(text)
    return tmp_path / "pack"


def test_it_counts_lines_files_doors_and_functions(package):
    assert house.measure(package) == {
        "lines": 15, "files": 6, "doors": 2, "lines of the longest function": 3, "import circles": 0,
    }  # fmt: skip


def test_a_circle_is_found_wherever_the_import_is(package):
    (package / "a" / "two.py").write_text("def g():\n    from pack.b.three import z\n")
    assert house.measure(package)["import circles"] == 1


def test_the_package_is_within_its_budget(capsys):
    house.main()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and all(f"{name} " in printed for name in house.BUDGET)


def test_more_than_the_budget_fails_and_is_named(capsys, monkeypatch):
    monkeypatch.setitem(house.BUDGET, "files", 3)
    with pytest.raises(SystemExit, match="over budget: files;"):
        house.main()
