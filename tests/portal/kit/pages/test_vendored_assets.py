"""What the pages load is what was vendored, nothing else, from nowhere else."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
VENDOR = ROOT / "static" / "vendor"
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())
FILES = [(package["folder"], name, digest) for package in MANIFEST for name, digest in package["files"].items()]


@pytest.mark.parametrize(("folder", "name", "digest"), FILES, ids=[f"{folder}/{name}" for folder, name, _ in FILES])
def test_every_file_is_as_it_was_vendored(folder: str, name: str, digest: str) -> None:
    found = hashlib.sha384((VENDOR / folder / name).read_bytes()).digest()
    assert digest == f"sha384-{base64.b64encode(found).decode()}"


def test_no_file_lies_there_unlisted() -> None:
    listed = {f"{folder}/{name}" for folder, name, _digest in FILES} | {"manifest.json"}
    assert {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()} == listed


@pytest.mark.parametrize("package", MANIFEST, ids=[package["name"] for package in MANIFEST])
def test_every_package_brings_its_licence(package: dict[str, object]) -> None:
    assert package["licence"] in {"MIT", "0BSD"}
    assert "LICENSE" in package["files"]  # type: ignore[operator]  # a mapping of names to digests


def test_icons_in_use_are_in_the_sprite_and_no_others() -> None:
    drawn = set(re.findall(r'<symbol id="([^"]+)"', (VENDOR / "tabler-icons" / "sprite.svg").read_text()))
    code = (ROOT / "portal/kit/templatetags/rung.py").read_text() + (
        ROOT / "workloads/lifecycle/views/home.py"
    ).read_text()
    text = "".join(path.read_text() for path in TEMPLATES)
    used = set(re.findall(r'{% icon "([^"]+)"', text)) | {name for name in drawn if f'"{name}"' in code}
    assert used == drawn


@pytest.mark.parametrize("path", TEMPLATES, ids=[str(path.relative_to(ROOT)) for path in TEMPLATES])
def test_a_template_is_short_and_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 120
    assert re.findall(r'(?:src|href|action)="(?:https?:)?//', text) == []
    assert re.findall(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|javascript:|hx-on|\|safe\b", text) == []
