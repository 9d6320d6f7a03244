"""Files of the user's own folder: written whole or not at all, and readable by their owner only if secret."""

import os
import stat
import tempfile
from pathlib import Path

from rung_cli.errors import UsageError


def folder() -> Path:
    """`RUNG_CONFIG`, else `rung` in the user's configuration folder."""
    if chosen := os.environ.get("RUNG_CONFIG"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "rung"


def read(path: Path) -> str | None:
    """The text; None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}.") from None


def write_private(path: Path, text: str) -> None:
    """Replace the file in one step; it is 0600 from its first byte on, in a folder of 0700."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp opens with O_EXCL and 0600.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error}.") from None


def write_text(path: Path, text: str) -> None:
    """Write it unchanged to the given place."""
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error}.") from None


def check_owner(path: Path) -> None:
    """UsageError for a file of another owner, or one that others may write: they could redirect every request."""
    found = _status(path)
    if found is None:
        return
    if found.st_uid not in {os.getuid(), 0}:
        raise UsageError(f"{path} belongs to another user and is ignored.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path} is writable by other users and is ignored.", hint=f"Check its contents, then run: chmod 600 {path}"
        )


def shut(path: Path) -> bool:
    """Make the file 0600. True where others could read it until now."""
    found = _status(path)
    if found is None or not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return False
    path.chmod(0o600)
    return True


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error}.") from None
