"""Completion: the real shells with the script that `rung completion` prints, and every kind of name."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Rung, job
from tests.cli.fake_portal import Answer, portal_that
from tests.support.real import needed
from tests.support.repository import ROOT

PATIENCE = 60.0
LINES = {
    "rung prio": "priorities",
    "rung list --all-pr": "list --all-projects",
    "rung list -p llm": "list -p llm-team",
    "rung logs llm-team/from-the-c": "logs llm-team/from-the-command",
}
"""What is typed before Tab, and what the command is then called with."""
PROGRAM = """#!/bin/sh
if [ -z "$_RUNG_COMPLETE" ]; then echo "$*" >> {ran}; exit; fi
PYTHONPATH={cli} exec {python} -m rung_cli "$@"
"""


@pytest.fixture
def workload(signed_in: Rung, home: Path) -> None:
    """A workload and a profile to complete."""
    assert signed_in("submit", "-f", "-", stdin=job("from-the-command")).code == 0
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(f"profiles:\n  staging: {{url: {os.environ['RUNG_URL']}}}\n")
    (home / "config.yaml").chmod(0o600)


@pytest.fixture
def ran(workload: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`rung` as a program that completes, and otherwise notes in this file what it was called with."""
    program, file = tmp_path / "bin" / "rung", tmp_path / "ran"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(ran=file, cli=ROOT / "cli", python=sys.executable))
    program.chmod(0o755)
    file.touch()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    return file


@pytest.mark.parametrize(
    ("shell", "flags", "setup"),
    [
        pytest.param("bash", ["--norc", "--noprofile", "-i"], "set +o history", id="bash"),
        pytest.param("zsh", ["-f", "-i"], "autoload -Uz compinit && compinit -u -D", id="zsh"),
    ],
)
def test_tab_completes_commands_flags_and_names(
    rung: Rung, ran: Path, tmp_path: Path, shell: str, flags: Sequence[str], setup: str
) -> None:
    script = tmp_path / "completion"
    script.write_text(rung("completion", shell).out)
    with terminal_of([needed(shell), *flags]) as terminal:
        terminal.run(f"{setup}; source {script}; echo ready-$((1 + 1))", until="ready-2")
        for count, line in enumerate(LINES, start=1):
            terminal.type(f"{line}\t\n")
            wait_for_lines(ran, count, terminal)
    assert [line.strip() for line in ran.read_text().splitlines()] == list(LINES.values())


def test_fish_completes_commands_flags_and_names(rung: Rung, ran: Path, tmp_path: Path) -> None:
    script = tmp_path / "rung.fish"
    script.write_text(rung("completion", "fish").out)
    requested = "; ".join(f"complete --do-complete '{line}'" for line in LINES)
    argv = [needed("fish"), "--no-config", "--command", f"source {script}; {requested}"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    offered = [line.split("\t")[0] for line in ended.stdout.splitlines()]
    assert offered == [line.rpartition(" ")[2] for line in LINES.values()]


OFFERED = {
    "rung list --phase Compl": ["Completed"],
    "rung list -o js": ["json"],
    "rung list --type PyT": ["PyTorchJob"],
    "rung list --project llm": ["llm-team"],
    "rung list -p nobody-has-this": [],
    "rung --profile stag": ["staging"],
    "rung profiles use stag": ["staging"],
    "rung clone x --priority very-h": ["very-high"],
    "rung clone x --preemptibility semi": ["semi-preemptible"],
    "rung submit x --node-pool a1": ["a100"],
    "rung nodes --cluster la": ["lab"],
    "rung wait x --for phase=Comp": ["phase=Completed"],
    "rung wait from-the-c": ["from-the-command"],
    "rung --profile staging list -p llm": ["llm-team"],
    "rung list --profile staging -p llm": ["llm-team"],
}


def test_every_kind_of_name_is_offered(rung: Rung, workload: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {line: complete(rung, monkeypatch, line) for line in OFFERED} == {
        line: (names, "") for line, names in OFFERED.items()
    }


@pytest.mark.parametrize("answer", [Answer(503), Answer(500, {"message": "no"}), Answer(200, ["surprise"])])
def test_a_portal_in_trouble_completes_nothing_and_says_nothing(
    rung: Rung, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    with portal_that(answer) as portal:
        for name, value in {"URL": portal.url, "CLIENT_ID": "me", "CLIENT_SECRET": "canary"}.items():
            monkeypatch.setenv(f"RUNG_{name}", value)
        assert complete(rung, monkeypatch, "rung list -p llm") == ([], "")


def test_nothing_is_asked_of_anybody_by_who_is_not_signed_in(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(rung, monkeypatch, "rung list -p llm") == ([], "")


def complete(rung: Rung, monkeypatch: pytest.MonkeyPatch, line: str) -> tuple[list[str], str]:
    """What bash is offered for the last word, and what was said beside it."""
    words = line.split(" ")
    for name, value in {"_RUNG_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": len(words) - 1}.items():
        monkeypatch.setenv(name, str(value))
    ended = rung()
    assert ended.code == 0
    return ended.out.split(), ended.err


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.shown = ""

    def type(self, text: str) -> None:
        """As if on its keyboard."""
        os.write(self._handle, text.encode())

    def run(self, line: str, *, until: str) -> None:
        """A line, and wait for what it prints."""
        self.type(f"{line}\n")
        ends = time.monotonic() + PATIENCE
        while until not in self.shown:
            assert time.monotonic() < ends, self.shown
            self.read()

    def read(self) -> None:
        """What has been shown since."""
        if select.select([self._handle], [], [], 0.05)[0]:
            self.shown += os.read(self._handle, 4096).decode(errors="replace")


@contextmanager
def terminal_of(argv: list[str]) -> Iterator[Terminal]:
    """The program on a terminal; it is ended with the block."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, start_new_session=True)
    os.close(follower)
    try:
        yield Terminal(leader)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def wait_for_lines(file: Path, count: int, terminal: Terminal) -> None:
    """Until the file has so many lines."""
    ends = time.monotonic() + PATIENCE
    while len(file.read_text().splitlines()) < count:
        assert time.monotonic() < ends, terminal.shown
        terminal.read()
