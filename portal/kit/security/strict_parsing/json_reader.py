"""Strict JSON: the standard library's grammar, with caps before it and repeated keys found after it.

Lines are looked up only when a problem has to be shown.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, islice
from typing import Any

from portal.kit.security.strict_parsing.documents import (
    Document,
    ParseLimits,
    decode,
    document_error,
    nearest_line,
    no_number,
    real_number,
    token,
    too_deep,
    too_many_nodes,
    visible,
    whole_number,
)

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
