"""Real processes of the portal for tests: started with an environment of their own, ended by their id."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.repository import ROOT


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of one installation: its data folder, its secrets, its database and broker."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RUNG_", "COV_", "PYTEST_"))}
    ours = {
        "RUNG_DATA": str(folder),
        "RUNG_SECRET_KEY": "only-for-tests-0123456789-abcdefghijklmnopqrstuvwxyz",
        "RUNG_LOG_LEVEL": "WARNING",
        "DJANGO_SETTINGS_MODULE": "portal.settings",
    }
    return {**inherited, **ours, **more}


def manage(env: Mapping[str, str], *arguments: str) -> str:
    """Run a management command; answers what it printed."""
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=dict(env), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(env: Mapping[str, str], *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module as a process of its own group, ended on leaving."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=ROOT, env=dict(env), stdout=output, stderr=output, process_group=0
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], seconds: float = 15) -> None:
    """SIGTERM, patience, then SIGKILL."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def eventually(condition: Callable[[], object], *, seconds: float = 30, log: Path | None = None) -> None:
    """Wait until the condition holds; say what the process wrote if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        said = log.read_text(errors="replace")[-4000:] if log and log.exists() else ""
        assert time.monotonic() < deadline, f"not within {seconds} s\n{said}"
        time.sleep(0.1)
