"""The repository as its tests see it: which files are tracked, which are ours."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("portal", "scheduling", "clusters", "tenants", "workloads", "cli")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Files under version control; in an export without history, all files that are not generated."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
        return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())
    skipped = {".venv", "var", ".git", "__pycache__"}
    return tuple(f for f in ROOT.rglob("*") if f.is_file() and not skipped & set(f.relative_to(ROOT).parts))


def product_files() -> list[Path]:
    """Our Python code without migrations and tests."""
    found = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return sorted(file for file in found if "migrations" not in file.parts)
