"""What is written about the command is what the command is."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

import rung_cli
from rung_cli.errors import MEANINGS
from rung_cli.main import app
from rung_cli.manual import manual
from tests.cli.conftest import Rung
from tests.support.repository import ROOT

COMMANDS = list(get_command(app).commands)  # type: ignore[attr-defined]  # it is a group


def test_the_page_is_made_of_the_commands() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == manual(), "run: python -m rung_cli.manual > docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(rung: Rung, name: str) -> None:
    ended = rung(name, "--help")
    assert (ended.code, f"rung {name}" in ended.out) == (0, True)
    assert f"rung {name}" in ended.out.partition("Usage:")[2].partition("\n")[2], "no example"
    assert f"\n## rung {name}\n" in manual()


def test_exit_codes_are_those_of_the_readme_and_of_the_help(rung: Rung) -> None:
    readme = (ROOT / "cli" / "README.md").read_text(encoding="utf-8")
    assert {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.+) \|$", readme, re.MULTILINE)} == {
        int(code): text for code, text in MEANINGS.items()
    }
    shown = " ".join(rung("--help").out.split())
    assert all(f"{code.value} {text}" in shown for code, text in MEANINGS.items())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_learn_to_complete(rung: Rung, shell: str) -> None:
    ended = rung("completion", shell)
    assert (ended.code, "_RUNG_COMPLETE" in ended.out) == (0, True)


def test_its_distribution_needs_what_it_imports_and_nothing_of_the_server() -> None:
    described = tomllib.loads((ROOT / "cli" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert described["version"] == rung_cli.__version__
    needed = {re.split(r"[<>=]", each)[0].replace("pyyaml", "yaml") for each in described["dependencies"]}
    files = list(Path(rung_cli.__file__).parent.rglob("*.py"))
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    outside = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names) - {"rung_cli"}
    assert outside == needed


def test_it_runs_as_a_program_of_its_own() -> None:
    requested = [sys.executable, "-m", "rung_cli", "--version"]
    ended = subprocess.run(requested, cwd=ROOT / "cli", capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"rung {rung_cli.__version__}\n")
