"""Strict YAML: libyaml's events in, plain values out.

No aliases, anchors, tags, merge keys or repeated keys. Plain scalars follow YAML 1.2's core schema, so that `no`,
`1:30`, `010` and dates stay the text they are; a field that wants something else refuses them where they stand.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import yaml

from portal.core.strict.documents import (
    Document,
    Limits,
    decode,
    nearest,
    real_number,
    too_deep,
    too_many_nodes,
    whole_number,
)
from portal.core.strict.problems import DocumentRefused, refused, token, visible

_DOCUMENT = re.compile(r"^---(?:\s|$)", re.MULTILINE)
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_ESCAPE_OF_SURROGATE = "invalid Unicode character escape code"


def documents_from_yaml(data: bytes, limits: Limits) -> list[Document]:
    """Every document of a YAML text that is not empty."""
    content = decode(data, limits)
    if len(_DOCUMENT.findall(content)) > limits.documents:
        raise refused(413, "too_many_documents", f"More than {limits.documents} documents in one text.")
    try:
        return [each for each in _Builder(content, limits).documents() if each.value is not None]
    except yaml.YAMLError as error:
        raise _syntax(error) from None


def _syntax(error: yaml.YAMLError) -> DocumentRefused:
    mark = getattr(error, "problem_mark", None)
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    line = mark.line + 1 if mark is not None else None
    if said == _ESCAPE_OF_SURROGATE:
        return refused(422, "bad_character", "Holds an escape of half a character.", line=line)
    return refused(400, "yaml_syntax", f"Not YAML: {visible(said, 200)}.", line=line)


class _Builder:
    """Builds values from events with its own counters, so that caps hold before memory is spent."""

    def __init__(self, content: str, limits: Limits) -> None:
        self._events: Iterator[Any] = yaml.parse(content, Loader=yaml.CSafeLoader)
        self._limits = limits
        self._nodes = 0
        self._lines: dict[str, int] = {}

    def documents(self) -> Iterator[Document]:
        found = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                found += 1
                if found > self._limits.documents:
                    raise refused(
                        413, "too_many_documents", f"More than {self._limits.documents} documents in one text."
                    )
                self._lines = {}
                value = self._node(next(self._events), "", 0)
                yield Document(value, partial(nearest, self._lines))

    def _node(self, event: Any, pointer: str, depth: int) -> Any:
        line = event.start_mark.line + 1
        self._lines.setdefault(pointer, line)
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise too_many_nodes(self._limits, line)
        if depth > self._limits.depth:
            raise too_deep(self._limits, line)
        _refuse_indirection(event, pointer, line)
        match event:
            case yaml.ScalarEvent():
                return _scalar(event)
            case yaml.SequenceStartEvent():
                return self._list(pointer, depth)
            case _:
                return self._object(pointer, depth)

    def _list(self, pointer: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, f"{pointer}/{len(items)}", depth + 1))
        return items

    def _object(self, pointer: str, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = _key(event, pointer)
            place = f"{pointer}/{token(key)}"
            line = event.start_mark.line + 1
            if key in members:
                raise refused(
                    422, "repeated_key", f"The key {visible(key)!r} stands here twice.", pointer=place, line=line
                )
            self._lines[place] = line
            members[key] = self._node(next(self._events), place, depth + 1)
        return members


def _refuse_indirection(event: Any, pointer: str, line: int) -> None:
    """Aliases multiply, anchors serve only aliases, and tags construct objects: none has a use here."""
    if isinstance(event, yaml.AliasEvent):
        raise refused(
            422,
            "alias",
            f"The alias *{visible(event.anchor)} is not followed: write the value out.",
            pointer=pointer,
            line=line,
        )
    if event.anchor is not None:
        raise refused(422, "anchor", f"The anchor &{visible(event.anchor)} is not taken.", pointer=pointer, line=line)
    if event.tag is not None:
        raise refused(422, "tag", f"The tag {visible(event.tag)} is not taken.", pointer=pointer, line=line)


def _key(event: Any, pointer: str) -> str:
    line = event.start_mark.line + 1
    _refuse_indirection(event, pointer, line)
    if not isinstance(event, yaml.ScalarEvent):
        raise refused(422, "bad_key", "A key must be plain text.", pointer=pointer, line=line)
    if event.value == "<<" and not event.style:
        raise refused(
            422, "merge_key", "The merge key << is not followed: write the members out.", pointer=pointer, line=line
        )
    return str(event.value)


def _scalar(event: Any) -> Any:
    written: str = event.value
    if event.style:  # quoted or a block; libyaml's plain style is the empty text
        return written
    if written in _WORDS:
        return _WORDS[written]
    if _WHOLE.fullmatch(written):
        return whole_number(written)
    return real_number(written) if _REAL.fullmatch(written) else written
