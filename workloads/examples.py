"""The manifests that ship with Rung: complete, valid, and one click away on the submit page."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "intake" / "examples"
EXAMPLES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def example_text(name: str) -> str:
    """The text of one of them; empty for any other name."""
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8") if name in EXAMPLES else ""
