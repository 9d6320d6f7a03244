"""What newcomers rely on: hooks that are the gates, workflows and forms that are valid, links that lead somewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.repository import ROOT, product_files, tracked_files

DOCUMENTS = [file for file in tracked_files() if file.suffix == ".md"]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r'<a id="([^"]+)"')
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def gates() -> set[str]:
    """The commands of `make check`, as a hook would call them."""
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    lines = [line.strip().removeprefix("@") for line in recipe[1].splitlines()]
    return {line.replace("$(BIN)", ".venv/bin").replace("$(MAKE) --no-print-directory", "make") for line in lines}


def test_the_hooks_are_the_gates_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    entries = [hook["entry"] for hook in hooks[0]["hooks"]]
    assert {entry.removeprefix("env ").replace("make --silent", "make") for entry in entries} == gates()


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/bug.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/feature.yml"),
    ],
)
def test_workflows_and_issue_forms_are_valid(schema: str, path: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(ROOT / path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def anchors(file: Path) -> set[str]:
    """Anchors of a document: of its headings, as GitHub makes them, and those it names."""
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    titles = (title.strip().lower() for title in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles} | set(ANCHOR.findall(text))


def broken_links(document: Path) -> Iterator[str]:
    """Relative links of a document to files or headings that do not exist."""
    for path, anchor in LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8"))):
        target = (document.parent / path).resolve() if path else document
        if path.startswith("/"):  # a page of the portal
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield f"{document.relative_to(ROOT)}: {path}#{anchor}"


def test_every_link_between_documents_leads_somewhere() -> None:
    assert [link for document in DOCUMENTS for link in broken_links(document)] == []


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {path for path, _ in LINK.findall(index)}
    assert {file.name for file in (ROOT / "docs").glob("*.md")} - listed == {"index.md"}


PATH = re.compile(r"`((?:portal|scheduling|clusters|tenants|workloads|cli|tests|templates|lab|docs)/[\w./-]*)`")


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_path_that_newcomers_are_sent_to_is_there(document: str) -> None:
    paths = PATH.findall((ROOT / document).read_text(encoding="utf-8"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_code_map_has_a_path_in_every_row() -> None:
    section = (
        (ROOT / "docs" / "architecture.md")
        .read_text(encoding="utf-8")
        .partition("## Code map")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (?!for |---)(.*) \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) >= 25
    assert [what for what, where in rows if not PATH.search(where)] == []


def test_the_glossary_names_what_the_code_has() -> None:
    """The last column of its second table: classes, functions, fields."""
    section = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("\n## Code")[2]
    names = {
        name for row in re.findall(r"\| ([^|]*) \|$", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    words = {word for file in product_files() for word in re.findall(r"\w+", file.read_text())}
    folders = {part for file in product_files() for part in file.relative_to(ROOT).with_suffix("").parts}
    assert len(names) > 40
    assert sorted(names - words - folders) == []
