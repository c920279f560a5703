"""A registry has objects by name, imports them when they are used, and gives no name of its own away."""

from fractions import Fraction
from importlib.metadata import EntryPoint

import pytest

from bothways.base import registry
from bothways.base.errors import InputError
from bothways.base.registry import Registry


@pytest.fixture
def numbers():
    return Registry(
        "number",
        "tests.numbers",
        {"fraction": "fractions:Fraction", "parts": "fractions:Fraction.limit_denominator", "real": float},
    )


@pytest.fixture
def packages(monkeypatch):
    """The entry points of other packages, by name, and the groups that were read."""
    points = {}
    read = []

    def found(group):
        read.append(group)
        return {name: EntryPoint(name, place, group) for name, place in points.items()}

    monkeypatch.setattr(registry, "read_entry_points", found)
    return points, read


def test_an_object_is_imported_when_it_is_used_and_may_be_an_attribute(numbers):
    assert numbers["fraction"] is Fraction
    assert numbers["parts"] is Fraction.limit_denominator
    assert numbers["real"] is float
    assert [*numbers.items()] == [("fraction", Fraction), ("parts", Fraction.limit_denominator), ("real", float)]


def test_use_leaves_the_entries_as_they_were(numbers):
    before = dict(numbers.entries)
    assert [*numbers.values()]
    assert numbers.entries == before


def test_entry_points_are_read_for_other_names_only(numbers, packages):
    points, read = packages
    assert "real" in numbers and numbers["fraction"] and [*numbers] and len(numbers) == 3
    assert read == []
    points["decimal"] = "decimal:Decimal"
    assert "decimal" in numbers and "octal" not in numbers
    assert {*read} == {"tests.numbers"}


def test_only_the_entry_point_of_the_name_is_imported(numbers, packages):
    points, _ = packages
    points |= {"broken": "no_such_module:Number", "decimal": "decimal:Decimal"}
    assert numbers["decimal"].__name__ == "Decimal"
    assert "broken" in numbers
    with pytest.raises(InputError, match=r"number 'broken': no_such_module:Number cannot be imported"):
        numbers["broken"]
    with pytest.raises(KeyError):
        numbers["octal"]


def test_a_name_of_ours_is_not_replaced_unsaid(numbers, packages):
    points, _ = packages
    points["real"] = "decimal:Decimal"
    assert numbers["real"] is float
    assert numbers.names() == ["fraction", "parts", "real"]
    with pytest.raises(InputError, match="number 'real' is registered already"):
        numbers.add("real", complex)
    numbers.add("real", complex, replace=True)
    numbers.add("whole", int)
    assert (numbers["real"], numbers["whole"]) == (complex, int)


def test_names_of_packages_are_listed_last_and_are_not_iterated_over(numbers, packages):
    points, _ = packages
    points["decimal"] = "decimal:Decimal"
    assert numbers["decimal"]
    assert [*numbers] == ["fraction", "parts", "real"]
    assert numbers.names() == ["fraction", "parts", "real", "decimal"]


def test_the_names_of_a_package_are_those_of_its_modules_that_are_not_ours(numbers, packages):
    points, _ = packages
    points |= {"decimal": "decimal:Decimal", "real": "decimal:Decimal", "other": "fractions:Fraction"}
    assert numbers.names_of("decimal") == ["decimal"]


def test_a_registry_without_a_group_reads_no_entry_points(packages):
    points, read = packages
    points["decimal"] = "decimal:Decimal"
    changes = Registry("change", "", {"real": float})
    assert "decimal" not in changes and changes.names() == ["real"]
    assert read == []
