"""docs/configuration.md lists every environment variable of ours, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import ROOT, tracked_files

DOCUMENT = ROOT / "docs" / "configuration.md"
NAME = r"(?:RUNG|LAB)_[A-Z_]*[A-Z]"
# Python and templates: a name in quotes is a variable, so is `$NAME`; `settings.NAME` and constants are not.
IN_CODE = re.compile(rf"""["']({NAME})["']|\$\{{?({NAME})""")
IN_CONFIGURATION = re.compile(rf"(?<![A-Z_])({NAME})")
ROW = re.compile(rf"^\| `({NAME})` \| ", re.MULTILINE)
CODE_SUFFIXES = {".py", ".html", ".js"}
CONFIGURATION = ("Makefile", "Dockerfile", "docker-compose.yml", ".env.example", "lab/", "deploy/", ".ci/", ".github/")


def variables_of(file: Path) -> Iterator[str]:
    """Names of environment variables that a file reads or sets."""
    name = str(file.relative_to(ROOT))
    if file.suffix in CODE_SUFFIXES:
        for quoted, expanded in IN_CODE.findall(file.read_text()):
            yield quoted or expanded
    elif name.startswith(CONFIGURATION) and file.suffix not in {".sum", ".mod", ".go"}:
        yield from IN_CONFIGURATION.findall(file.read_text(errors="replace"))


def test_the_table_lists_every_environment_variable_and_no_other() -> None:
    used = {name: file for file in tracked_files() for name in variables_of(file)}
    listed = ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert {name: str(used[name]) for name in sorted(set(used) - set(listed))} == {}, "not in docs/configuration.md"
    assert sorted(set(listed) - set(used)) == [], "listed, but nothing reads it"


def test_the_table_is_sorted_and_names_each_variable_once() -> None:
    listed = ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert listed == sorted(set(listed))
