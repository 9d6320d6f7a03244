"""Files and functions stay small enough to be read at one sitting."""

import ast
import math
import statistics
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT, product_files

TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
SCRIPTS = sorted((ROOT / "static" / "js").glob("*.js"))


def lines_of(file: Path) -> int:
    return len(file.read_text().splitlines())


def functions_of(file: Path) -> Iterable[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file.relative_to(ROOT)}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def percentile_90(sizes: list[int]) -> int:
    return sorted(sizes)[math.ceil(len(sizes) * 0.9) - 1]


FILES = {str(file.relative_to(ROOT)): lines_of(file) for file in product_files()}
FUNCTIONS = dict(found for file in product_files() for found in functions_of(file))


def test_every_package_is_measured() -> None:
    assert {name.split("/")[0] for name in FILES} == set(PACKAGES)


def test_most_functions_are_short() -> None:
    sizes = list(FUNCTIONS.values())
    assert statistics.median(sizes) <= 10
    assert percentile_90(sizes) <= 25


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        pytest.param(FILES, 400, id="files"),
        pytest.param(FUNCTIONS, 50, id="functions"),
        pytest.param({str(f.relative_to(ROOT)): lines_of(f) for f in TEMPLATES}, 120, id="templates"),
    ],
)
def test_nothing_is_too_large(sizes: dict[str, int], limit: int) -> None:
    assert {name: size for name, size in sizes.items() if size > limit} == {}


def test_our_own_javascript_stays_within_its_budget() -> None:
    """A page for all pages, and what follows a log."""
    assert sum(lines_of(file) for file in SCRIPTS) <= 160
