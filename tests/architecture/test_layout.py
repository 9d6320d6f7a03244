"""A folder is a feature, a file says its role, and every name is found once."""

import ast
from collections import Counter, defaultdict

import pytest

from tests.support.repository import ROOT, product_files

APPS = ("clusters", "tenants", "workloads")
AT_THE_ROOT = {"__init__.py", "apps.py", "models.py", "urls.py"}
MODULES_PER_FOLDER = 15
PRODUCT_FILES = 529
"""Without the command line and migrations. Only a new feature may raise it, by the files that it adds."""
FILES = [file for file in product_files() if "migrations" not in file.parts]
# Words that a reader who has never seen this code would not search for.
UNCLEAR = {
    "utils", "helpers", "common", "manager", "near", "told", "looks", "looking", "twins", "sightings",
    "touches", "inbox", "abreast", "believed", "entered", "pacing", "former", "hindrances", "asking",
    "inquiries", "configured", "homes", "estate", "holdings", "promises", "standings", "recipes", "wishes",
    "marks", "wakeups", "repeats", "attempts", "periods", "collector", "sheets", "arriving", "guesses",
    "leaving", "switches", "switching", "moved", "stories", "voices", "wordings", "happenings", "placing",
    "reprioritising", "telling", "keeping", "natively", "declared",
}  # fmt: skip


@pytest.mark.parametrize("app", APPS)
def test_the_root_of_an_app_holds_only_what_django_looks_for_there(app: str) -> None:
    assert {file.name for file in (ROOT / app).glob("*.py")} <= AT_THE_ROOT


def test_no_folder_holds_more_modules_than_can_be_taken_in() -> None:
    modules = Counter(str(file.parent.relative_to(ROOT)) for file in FILES if file.name != "__init__.py")
    assert {folder: count for folder, count in modules.items() if count > MODULES_PER_FOLDER} == {}


def test_the_product_does_not_grow_by_splitting() -> None:
    assert len([file for file in FILES if "rung_cli" not in file.parts]) <= PRODUCT_FILES


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in DJANGO_EXPECTS} == {}


def test_modules_are_named_by_words_of_the_field() -> None:
    assert [str(file.relative_to(ROOT)) for file in FILES if file.stem in UNCLEAR] == []


# Django imports these by name from their modules.
DJANGO_EXPECTS = {"Command", "Migration"}
