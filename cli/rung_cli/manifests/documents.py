"""Manifests as they are sent: whole texts, cut where YAML cuts them, with the lines they have in their file."""

import base64
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rung_cli.errors import UsageError

# At the start of a line these end a document wherever they stand, also inside a block of text.
_MARK: Final = re.compile(r"---(?=\s|$)")
_END: Final = re.compile(r"\.\.\.(?=\s|$)")
_NOTHING: Final = re.compile(r"\s*(#.*)?$|%|---\s*(#.*)?$")
LARGEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One manifest; blank lines stand before it, so that the server counts the lines of the file."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, document {self.number}"

    @property
    def encoded(self) -> str:
        """For `manifestBase64Encoded`."""
        return base64.b64encode(self.text.encode("utf-8")).decode("ascii")


def read_documents(files: Sequence[str]) -> list[ManifestDocument]:
    """Every document of every file, in order. UsageError where there is none, or a file cannot be read."""
    if list(files).count("-") > 1:
        raise UsageError("stdin can be read only once.")
    found = [document for file in files for document in _cut(*_text(file))]
    if not found:
        raise UsageError(f"No manifests in {', '.join(files)}.")
    return found


def _text(file: str) -> tuple[str, str]:
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if file == "-" else Path(file).read_bytes()[: LARGEST + 1]
        if len(data) > LARGEST:
            raise UsageError(f"{file} is larger than {LARGEST} bytes.")
        return ("stdin" if file == "-" else file), data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not valid UTF-8 at byte {error.start}.") from None


def _cut(file: str, text: str) -> Iterator[ManifestDocument]:
    number = 0
    for start, lines in _pieces(text.splitlines()):
        if all(_NOTHING.match(line) for line in lines):
            continue
        number += 1
        yield ManifestDocument(file, number, "\n" * start + "\n".join(lines) + "\n")


def _pieces(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line it starts at, its lines)."""
    start, piece = 0, list[str]()
    for place, line in enumerate(lines):
        if _MARK.match(line) or _END.match(line):
            yield start, piece
            start, piece = place, []
            if _END.match(line):
                start = place + 1
                continue
        piece.append(line)
    yield start, piece
