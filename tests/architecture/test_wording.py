"""Texts that users read are plain: titles are nouns, buttons are verbs, one word for one thing."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT

PACKAGES = ("portal", "scheduling", "clusters", "tenants", "workloads", "cli/rung_cli")
REPLACED = (
    "What can I run, and what needs me",
    "What will happen",
    "With the ticked rows",
    "Tick every row",
    "Tick rows first",
    "the line at 100",
    "default of the type",
    "What would do better",
    "What Rung takes of it",
    "no reservation;",
    "An estimate by the model of",
    "are read, but not predicted",
    "Evicted, not back",
    "Not handed over",
    "Handed to the scheduler",
    "hands it to the cluster now",
    "among what waits in its queue",
    "You can start",
    "quota and surplus are used up",
    "Be mailed when this happens",
    "GPUs held / asked",
    "Waited, ran",
    "It had saved no checkpoint",
    "every pod succeeded",
    "failed too often",
    "What happened",
    "Read anew every",
    "Earlier lines are left out; what follows",
    "its logs are gone with it",
    "keep the old number",
    "Priority it carries",
    "Keep as a template",
    "Split as a shell would",
    "It must not start as root",
    "Where its pods go",
    "If nothing sets it",
    "If it finds no room there",
    "Scavenges what nobody else wants",
    "Plan it",
    "Loading is a plan",
    "It is refused if anything",
    "deleted and created anew",
    "as delivered",
    "Offer again",
    "through any door",
    "What holds in",
    "Set a policy",
    "the nearest counts",
    "unless somebody chooses",
    "Nobody may choose another",
    "None ticked",
    "what a line is to be of",
    "A line for each",
    "Tell of",
    "Both days are in it",
    "Who used how many GPU",
    "Mail is off in this installation",
    "You are told of nothing yet",
    "by no channel",
    "ask in your name",
    "It works for",
    "It works in",
    "It only reads",
    "Make the key",
    "How do you have it",
    "Only test it",
    "inner dashes; it stays",
    "no acting as somebody else",
    "What it enforces",
    "What would change is told first",
    "It cannot be forgotten while",
    "written, {{ failed }} failed",
    "At the last look nothing differed",
    "takes no new pods",
    "There is nothing here that you may see",
    "Nothing was measured in this time",
    "First allotment",
    "the dashed line is what is deserved",
    "Not complete yet",
)
FILES = tuple(
    path
    for folder, kind in (("templates", "*.html"), ("static/js", "*.js"), *((name, "*.py") for name in PACKAGES))
    for path in sorted((ROOT / folder).rglob(kind))
)


def _literals(source: str) -> Iterator[str]:
    """Every string of a module except its docstrings; an f-string with its placeholders left out."""
    tree = ast.parse(source)
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def _texts(path: Path) -> str:
    source = path.read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", "\n".join(_literals(source)) if path.suffix == ".py" else source)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """What each template, script and product module can show, by its path."""
    return {path.relative_to(ROOT).as_posix(): _texts(path) for path in FILES}


def test_replaced_texts_do_not_come_back(texts: dict[str, str]) -> None:
    assert len(texts) > 300
    found = [f"{name}: {old}" for name, text in texts.items() for old in REPLACED if old in text]
    assert found == []


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param('"""What happened."""', False, id="a docstring"),
        pytest.param("# What happened\n", False, id="a comment"),
        pytest.param("x = 'What happened'", True, id="a string"),
        pytest.param("x = f'{y}: What ' 'happened {z}'", True, id="parts of an f-string"),
    ],
)
def test_the_check_reads_strings_only(source: str, seen: bool) -> None:
    assert any("What happened" in text for text in _literals(source)) is seen


def test_a_comment_of_a_template_ends_on_its_line() -> None:
    """Django prints one that does not."""
    lines = [(file, line) for file in (ROOT / "templates").rglob("*.html") for line in file.read_text().splitlines()]
    assert [(str(file), line) for file, line in lines if line.count("{#") != line.count("#}")] == []
