"""What waits most comes first, and what shares a cluster stays together."""

from itertools import chain

import pytest

from tests.support.order import LAST, UNITS, place_of, unit_of
from tests.support.repository import ROOT


@pytest.mark.parametrize("path", list(chain.from_iterable(UNITS)))
def test_every_path_of_the_order_is_there_and_counts(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()
    assert path in UNITS[place_of(f"{path}::test")]


@pytest.mark.parametrize("path", LAST)
def test_what_computes_longest_is_there_and_a_unit_of_its_own(path: str) -> None:
    assert (ROOT / path).is_file()
    assert unit_of(f"{path}::test") == path


def test_a_named_module_is_taken_out_of_its_folder() -> None:
    assert unit_of("tests/real/test_gangs.py::test_one") == unit_of("tests/real/test_model_agrees_with_gangs.py::test")
    assert unit_of("tests/real/test_gangs.py::test_one") != unit_of("tests/real/test_seeds.py::test_one")
    assert unit_of("tests/real/test_seeds.py::test_one") == unit_of("tests/real/test_of_tomorrow.py::test_one")


def test_what_is_named_nowhere_is_a_unit_per_module_and_comes_last() -> None:
    assert unit_of("tests/portal/test_health.py::TestOne::test_one") == "tests/portal/test_health.py"
    assert place_of("tests/portal/test_health.py::test_one") == len(UNITS)
