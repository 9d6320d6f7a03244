"""Finding the real servers and browsers that some tests need. Missing: skip and say how to get it; in CI: fail."""

import os
import shutil
import socket
from pathlib import Path
from typing import NoReturn

import pytest

PACKAGES = {
    "postgres": "postgresql",
    "redis-server": "redis-server",
    "chromium": "chromium fonts-dejavu-core",
    "bash": "bash",
    "zsh": "zsh",
    "fish": "fish",
    "curl": "curl",
    "jq": "jq",
}


def needed(name: str, *folders: str) -> str:
    """Path of a program, searched on PATH and then in further folders."""
    found = shutil.which(name) or next((str(p) for folder in folders for p in sorted(Path("/").glob(folder))), None)
    return found or missing(name)


def missing(name: str) -> NoReturn:
    """No such program: a failure in CI, elsewhere a skip that says what to install."""
    unavailable(f"{name} is not installed: apt-get install -y --no-install-recommends {PACKAGES[name]}")


def unavailable(hint: str) -> NoReturn:
    """Something real is not there: a failure in CI, elsewhere a skip that says how to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(hint, pytrace=False)
    pytest.skip(hint)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def by_hand(variable: str, scheduler: str) -> None:
    """A scheduler whose programs no registry has: without a folder of them CI skips, too, and says so."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no folder with the programs of {scheduler}: docs/lab.md says which")
