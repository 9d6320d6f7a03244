"""Bytes to text, and the caps that hold before anything is built from it."""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from portal.core.strict.problems import nowhere, refused, visible

GZIP_MAGIC: Final = b"\x1f\x8b"
LONGEST_INTEGER: Final = 19
_UNSTORABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A scalar that was written but stands for nothing: NaN, Infinity, an integer of 400 digits."""

    text: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one text. Nodes are keys, values and items together."""

    size: int = 256 * 1024
    depth: int = 40
    nodes: int = 20_000
    documents: int = 20


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed document. `line_of` finds the line of a JSON pointer, or of the nearest thing around it."""

    value: Any
    line_of: Callable[[str], int | None] = nowhere


def decode(data: bytes, limits: Limits) -> str:
    """UTF-8 text within the size cap, free of what cannot be stored."""
    if len(data) > limits.size:
        raise refused(413, "too_large", f"{len(data)} bytes; up to {limits.size} are read.")
    if data.startswith(GZIP_MAGIC):
        raise refused(413, "compressed", "Compressed bodies are not read: send the text itself.")
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise refused(422, "byte_order_mark", "The text starts with a byte order mark: save it as plain UTF-8.", line=1)
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refused(422, "not_utf8", f"Byte {error.start} is not UTF-8.", line=line) from None
    if found := _UNSTORABLE.search(decoded):
        line = decoded.count("\n", 0, found.start()) + 1
        raise refused(422, "bad_character", f"Holds the character {visible(found.group())}.", line=line)
    return decoded


def too_deep(limits: Limits, line: int | None = None) -> Exception:
    """The refusal of a document nested past the cap."""
    return refused(422, "too_deep", f"Nested deeper than {limits.depth} levels.", line=line)


def too_many_nodes(limits: Limits, line: int | None = None) -> Exception:
    """The refusal of a document with too many parts."""
    return refused(413, "too_many_nodes", f"More than {limits.nodes} keys and values.", line=line)


def measure(value: Any, limits: Limits) -> None:
    """Hold an already parsed object to the caps, without recursion."""
    nodes, level = 0, [value]
    for _ in range(limits.depth + 1):
        level = [child for parent in level for child in _children(parent)]
        nodes += len(level)
        if nodes > limits.nodes:
            raise too_many_nodes(limits)
        if not level:
            return
    raise too_deep(limits)


def _children(parent: Any) -> list[Any]:
    if isinstance(parent, Mapping):
        return list(parent.values())
    return list(parent) if isinstance(parent, (list, tuple)) else []


def whole_number(written: str) -> int | Unreadable:
    """An integer of a size some field could hold."""
    if len(written) > LONGEST_INTEGER:
        return Unreadable(
            written[:40], "number_too_large", f"An integer of {len(written)} digits is more than any field takes."
        )
    return int(written)


def real_number(written: str) -> float | Unreadable:
    """A finite decimal number."""
    number = float(written) if len(written) <= 40 else float("inf")
    if number in {float("inf"), float("-inf")}:
        return Unreadable(written[:40], "number_too_large", f"{written[:40]} is more than any field takes.")
    return number


def no_number(written: str) -> Unreadable:
    """NaN and the infinities, which JSON does not know."""
    return Unreadable(written, "not_a_number", f"{written} is no JSON number.")


def nearest(lines: Mapping[str, int], pointer: str) -> int | None:
    """The line of a pointer, or of the closest ancestor that stands in the text."""
    while pointer not in lines:
        if not pointer:
            return None
        pointer = pointer.rpartition("/")[0]
    return lines[pointer]
