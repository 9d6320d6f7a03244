"""What is committed names no host of a registry and no path of somebody's machine, and vendored files are true."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT, tracked_files

# Written in pieces, so that this file does not match itself.
FORBIDDEN = re.compile(
    "|".join(
        [
            "--(extra-)?index" + "-url",
            "--find" + "-links",
            r"file:" + r"//",
            r"(pypi|pythonhosted|npmjs|yarnpkg)" + r"\.(org|com|io)",
            r"registry" + r"\.npm",
            r"deb\." + "debian",
            r"proxy\." + "golang",
            r"(?<![\w.])/(work|root|home)" + r"/\w",
        ]
    )
)
BINARY = {".png", ".ico", ".woff", ".woff2", ".gz", ".jsonl"}
VENDOR = ROOT / "static" / "vendor"


def texts() -> list[Path]:
    return [f for f in tracked_files() if f.suffix not in BINARY and VENDOR not in f.parents and f.name != "LICENSE"]


def test_no_registry_host_and_no_machine_path() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {match.group()}"
        for file in texts()
        if (match := FORBIDDEN.search(file.read_text(errors="replace")))
    ]
    assert found == []


def test_no_lock_that_names_hosts() -> None:
    names = {file.name for file in tracked_files()}
    assert not names & {"uv.lock", "pylock.toml", "package-lock.json", "poetry.lock"}


def test_every_requirement_is_pinned_with_hashes() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().replace("\\\n", " ").strip())
        pinned = [entry for entry in entries if not entry.startswith("#")]
        assert pinned
        assert [entry.split()[0] for entry in pinned if "==" not in entry or "--hash=sha256:" not in entry] == []


def vendored() -> list[tuple[str, str]]:
    entries = json.loads((VENDOR / "manifest.json").read_text())
    return [(f"{entry['folder']}/{name}", value) for entry in entries for name, value in entry["files"].items()]


@pytest.mark.parametrize(("path", "sha384"), vendored())
def test_a_vendored_file_is_the_published_one(path: str, sha384: str) -> None:
    digest = hashlib.sha384((VENDOR / path).read_bytes()).digest()
    assert sha384.removeprefix("sha384-") in {digest.hex(), base64.b64encode(digest).decode()}


def test_every_vendored_file_is_listed() -> None:
    there = {str(f.relative_to(VENDOR)) for f in VENDOR.rglob("*") if f.is_file() and f.name != "manifest.json"}
    assert there == {path for path, _ in vendored()}


def test_every_vendored_package_brings_its_licence() -> None:
    entries = json.loads((VENDOR / "manifest.json").read_text())
    assert [entry["name"] for entry in entries if not {"LICENSE"} <= set(entry["files"])] == []
    assert [entry["name"] for entry in entries if not (entry["version"] and entry["licence"])] == []
