"""Strict parsing of what people send: limits before anything is built, then JSON without repeated keys. Pure.

Each problem carries its JSON pointer and line. Lines are looked up only when a problem has to be shown. YAML is read by
`portal.kit.security.strict_yaml` within the same limits.
"""

import codecs
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate, islice
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


_BRACKET = re.compile(r"[\[\]{}]")
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]++|\s++', re.DOTALL)


def document_from_json(data: bytes, limits: ParseLimits) -> Document:
    """The one value of a JSON text."""
    content = decode(data, limits)
    hold_caps(content, limits)
    repeats = _Repeats()
    try:
        value = json.loads(
            content,
            object_pairs_hook=repeats.collect,
            parse_int=whole_number,
            parse_float=real_number,
            parse_constant=no_number,
        )
    except json.JSONDecodeError as error:
        raise document_error(400, "json_syntax", f"Not JSON: {error.msg}.", line=error.lineno) from None
    if repeats.found:
        _report_repeat(content)
    return Document(value, _JsonLines(content).of)


class _Repeats:
    """Notices that some object wrote a key twice; where is looked up afterwards."""

    def __init__(self) -> None:
        self.found = False

    def collect(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        self.found = self.found or len(members) != len(pairs)
        return members


class _JsonLines:
    """Lines of pointers, found at the first question."""

    def __init__(self, content: str) -> None:
        self._lines = cache(lambda: dict(reversed(list(_pointers(content)))))

    def of(self, pointer: str) -> int | None:
        """The line of a pointer, or of the nearest thing around it."""
        return nearest_line(self._lines(), pointer)


def hold_caps(content: str, limits: ParseLimits) -> None:
    """Raise DocumentInvalid for a text of too many keys and values or too deep a nesting, before anything is built."""
    outside = "".join(content.replace("\\\\", "").replace('\\"', "").split('"')[::2])  # of strings
    opened = outside.count("[") + outside.count("{")
    if opened > limits.depth:
        # No more are read than a text of so few nodes has.
        brackets = islice(_BRACKET.finditer(outside), 2 * limits.nodes)
        if max(accumulate(1 if each.group() in "[{" else -1 for each in brackets)) > limits.depth:
            raise too_deep(limits)
    if opened + outside.count(",") > limits.nodes:
        raise too_many_nodes(limits)


def _report_repeat(content: str) -> None:
    seen: set[str] = set()
    for pointer, line in _pointers(content):
        if pointer in seen:
            message = f"Duplicate key {visible(pointer)}."
            raise document_error(422, "repeated_key", message, pointer=pointer, line=line)
        seen.add(pointer)


class _Container:
    """An object or list that is open while the text is walked."""

    def __init__(self, pointer: str, mark: str) -> None:
        self._pointer = pointer
        self._next = 0 if mark == "[" else None
        self._member: str | None = None

    def step(self, mark: str) -> tuple[str, bool]:
        """The pointer that a key, value or item belongs to, and whether it is met for the first time."""
        if self._next is not None:
            self._next += 1
            return f"{self._pointer}/{self._next - 1}", True
        if self._member is None:
            self._member = f"{self._pointer}/{token(json.loads(mark))}"
            return self._member, True
        pointer, self._member = self._member, None
        return pointer, False


def _pointers(content: str) -> Iterator[tuple[str, int]]:
    """Every member and item of a text known to be JSON, in its order, with its line."""
    yield "", 1
    open_ones: list[_Container] = []
    line = 1
    for match in _TOKEN.finditer(content):
        mark = match.group()
        if mark.isspace():
            line += mark.count("\n")
        elif mark in "]}":
            open_ones.pop()
        elif mark not in ":,":
            pointer, fresh = open_ones[-1].step(mark) if open_ones else ("", False)
            if fresh:
                yield pointer, line
            if mark in "[{":
                open_ones.append(_Container(pointer, mark))
