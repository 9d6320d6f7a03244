"""Decode bytes to text and enforce size limits before anything is built; report each problem with pointer and line.

DocumentRefused ├── 400 the text is no YAML or JSON at all ├── 413 larger than is read └── 422 a field is refused
"""

import codecs
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final


def visible(text: object, longest: int = 80) -> str:
    """Attacker's text made fit for a message: short, storable, and without characters that hide or reorder others."""
    if isinstance(text, int) and text.bit_length() > 256:
        return f"a number of {text.bit_length()} bits"
    shown = str(text)[: longest + 1]
    shown = shown if len(shown) <= longest else f"{shown[:longest]}…"
    if shown.isascii() and shown.isprintable():  # nearly always, and asked for every key of a document
        return shown
    return "".join(_escaped(char) if unicodedata.category(char)[0] == "C" else char for char in shown)


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 126 else f"\\x{ord(char):02x}"


def token(key: object) -> str:
    """One JSON pointer token (RFC 6901), shown safely."""
    if isinstance(key, str) and len(key) <= 120 and key.isascii() and key.isidentifier():
        return key  # nearly always
    return visible(key, 120).replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """One refused field. `document` counts from zero within a file of several; `allowed` is what would be right."""

    pointer: str
    code: str
    message: str
    line: int | None = None
    allowed: tuple[str, ...] = ()
    document: int = 0

    def as_json(self) -> dict[str, Any]:
        """The problem as an API answer shows it; empty parts are left out."""
        shown = {key: value for key, value in asdict(self).items() if value not in (None, (), "", 0)}
        return {"pointer": self.pointer, **shown}


class DocumentInvalid(Exception):
    """A document that is not taken. `status` is 400, 413 or 422; `problems` is never empty."""

    def __init__(self, status: int, problems: Iterable[DocumentProblem]) -> None:
        self.status = status
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{each.pointer or '/'}: {each.message}" for each in self.problems[:3]))


def document_error(
    status: int, code: str, message: str, *, pointer: str = "", line: int | None = None
) -> DocumentInvalid:
    """A refusal with a single problem, such as a parser's."""
    return DocumentInvalid(status, [DocumentProblem(pointer, code, message, line)])


def no_line(_pointer: str) -> int | None:
    """The line of a pointer in something that had no text."""
    return None


GZIP_MAGIC: Final = b"\x1f\x8b"
LONGEST_INTEGER: Final = 19
_UNSTORABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A scalar without a usable value: NaN, Infinity, an integer of 400 digits."""

    text: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Caps on one text. Nodes are keys, values and items together."""

    size: int = 256 * 1024
    depth: int = 40
    nodes: int = 10_000
    documents: int = 20


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed document. `line_of` finds the line of a JSON pointer, or of the nearest thing around it."""

    value: Any
    line_of: Callable[[str], int | None] = no_line


def decode(data: bytes, limits: ParseLimits) -> str:
    """UTF-8 text within the size cap, free of what cannot be stored."""
    if len(data) > limits.size:
        raise document_error(413, "too_large", f"{len(data)} bytes; the maximum is {limits.size}.")
    if data.startswith(GZIP_MAGIC):
        raise document_error(413, "compressed", "Compressed bodies are not supported. Send plain text.")
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise document_error(
            422, "byte_order_mark", "The text starts with a byte order mark. Save it as plain UTF-8.", line=1
        )
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise document_error(422, "not_utf8", f"Byte {error.start} is not valid UTF-8.", line=line) from None
    if found := _UNSTORABLE.search(decoded):
        line = decoded.count("\n", 0, found.start()) + 1
        raise document_error(422, "bad_character", f"Contains the character {visible(found.group())}.", line=line)
    return decoded


def too_deep(limits: ParseLimits, line: int | None = None) -> Exception:
    """The refusal of a document nested past the cap."""
    return document_error(422, "too_deep", f"Nested more than {limits.depth} levels deep.", line=line)


def too_many_nodes(limits: ParseLimits, line: int | None = None) -> Exception:
    """The refusal of a document with too many parts."""
    return document_error(413, "too_many_nodes", f"More than {limits.nodes} keys and values.", line=line)


def measure(value: Any, limits: ParseLimits) -> None:
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
        return Unreadable(written[:40], "number_too_large", f"An integer of {len(written)} digits is too large.")
    return int(written)


def real_number(written: str) -> float | Unreadable:
    number = float(written) if len(written) <= 40 else float("inf")
    if number in {float("inf"), float("-inf")}:
        return Unreadable(written[:40], "number_too_large", f"{written[:40]} is too large.")
    return number


def no_number(written: str) -> Unreadable:
    """NaN and the infinities, which JSON does not know."""
    return Unreadable(written, "not_a_number", f"{written} is not a JSON number.")


def nearest_line(lines: Mapping[str, int], pointer: str) -> int | None:
    """The line of a pointer, or of its closest ancestor in the text."""
    while pointer not in lines:
        if not pointer:
            return None
        pointer = pointer.rpartition("/")[0]
    return lines[pointer]
