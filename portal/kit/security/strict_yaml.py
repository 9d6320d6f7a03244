"""Strict YAML: libyaml's events in, plain values out.

No aliases, anchors, tags, merge keys or repeated keys. Plain scalars follow YAML 1.2's core schema, so that `no`,
`1:30`, `010` and dates stay the text they are; a field that wants something else refuses them where they stand.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import yaml

from portal.kit.security.strict_json import (
    Document,
    DocumentInvalid,
    ParseLimits,
    decode,
    document_error,
    real_number,
    token,
    too_deep,
    too_many_nodes,
    visible,
    whole_number,
)

_DOCUMENT = re.compile(r"^---(?:\s|$)", re.MULTILINE)
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_ESCAPE_OF_SURROGATE = "invalid Unicode character escape code"


def documents_from_yaml(data: bytes, limits: ParseLimits) -> list[Document]:
    """Every document of a YAML text that is not empty."""
    content = decode(data, limits)
    if len(_DOCUMENT.findall(content)) > limits.documents:
        raise document_error(413, "too_many_documents", f"More than {limits.documents} documents in one text.")
    try:
        return [each for each in _Builder(content, limits).documents() if each.value is not None]
    except yaml.YAMLError as error:
        raise _syntax(error) from None


def _syntax(error: yaml.YAMLError) -> DocumentInvalid:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    line = mark.line + 1 if mark is not None else None
    if problem == _ESCAPE_OF_SURROGATE:
        return document_error(422, "bad_character", "Contains an incomplete character escape.", line=line)
    return document_error(400, "yaml_syntax", f"Not YAML: {visible(problem, 200)}.", line=line)


Members = Mapping[str, "Lines"] | Sequence["Lines"]
"""The lines of a value's members: by pointer token in an object, in order in a list."""
Lines = tuple[int, Members]
"""The line of a value, and those of its members."""
_NO_MEMBERS: Final[Mapping[str, Lines]] = {}


class _Builder:
    """Builds values from events with its own counters, so that caps hold before memory is spent.

    Where it is, is kept as keys and numbers: pointers are made when a problem has to be shown.
    """

    def __init__(self, content: str, limits: ParseLimits) -> None:
        self._events: Iterator[Any] = yaml.parse(content, Loader=yaml.CSafeLoader)
        self._limits = limits
        self._nodes = 0
        self._path: list[str | int] = []

    def documents(self) -> Iterator[Document]:
        found = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                found += 1
                if found > self._limits.documents:
                    raise document_error(
                        413, "too_many_documents", f"More than {self._limits.documents} documents in one text."
                    )
                first = next(self._events)
                value, members = self._node(first)
                yield Document(value, partial(_line_of, (_line(first), members)))

    def _node(self, event: Any) -> tuple[Any, Members]:
        """A value, and the lines of its members."""
        self._count(event)
        if len(self._path) > self._limits.depth:
            raise too_deep(self._limits, _line(event))
        self._refuse_indirection(event)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event), _NO_MEMBERS
        return self._list() if isinstance(event, yaml.SequenceStartEvent) else self._object()

    def _count(self, event: Any) -> None:
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise too_many_nodes(self._limits, _line(event))

    def _list(self) -> tuple[list[Any], Members]:
        items: list[Any] = []
        lines: list[Lines] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            self._path.append(len(items))
            item, below = self._node(event)
            lines.append((_line(event), below))
            items.append(item)
            self._path.pop()
        return items, lines

    def _object(self) -> tuple[dict[str, Any], Members]:
        """A member's line is its key's, which comes first."""
        members: dict[str, Any] = {}
        lines: dict[str, Lines] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            self._count(event)
            key = self._key(event)
            self._path.append(key)
            if key in members:
                raise self._refused(event, "repeated_key", f"Duplicate key {visible(key)!r}.")
            members[key], below = self._node(next(self._events))
            lines[token(key)] = _line(event), below
            self._path.pop()
        return members, lines

    def _key(self, event: Any) -> str:
        self._refuse_indirection(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refused(event, "bad_key", "Keys must be plain text.")
        if event.value == "<<" and not event.style:
            raise self._refused(event, "merge_key", "The merge key << is not supported. Write the members out.")
        return str(event.value)

    def _refuse_indirection(self, event: Any) -> None:
        """Aliases multiply, anchors serve only aliases, and tags construct objects: none has a use here."""
        if event.anchor is None and event.tag is None:
            return  # an alias has the anchor that it repeats
        if isinstance(event, yaml.AliasEvent):
            text = f"The alias *{visible(event.anchor)} is not supported. Write the value out."
            raise self._refused(event, "alias", text)
        if event.anchor is not None:
            raise self._refused(event, "anchor", f"The anchor &{visible(event.anchor)} is not allowed.")
        raise self._refused(event, "tag", f"The tag {visible(event.tag)} is not allowed.")

    def _refused(self, event: Any, code: str, message: str) -> DocumentInvalid:
        return document_error(422, code, message, pointer=self._pointer(), line=_line(event))

    def _pointer(self) -> str:
        return "".join(f"/{token(part)}" for part in self._path)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _line_of(lines: Lines, pointer: str) -> int:
    """The line of a pointer, or of the nearest thing around it."""
    line, members = lines
    for part in pointer.split("/")[1:]:
        if isinstance(members, Mapping):
            below = members.get(part)
        else:
            below = members[int(part)] if part.isdecimal() and int(part) < len(members) else None
        if below is None:
            break
        line, members = below
    return line


def _scalar(event: Any) -> Any:
    written: str = event.value
    if event.style:  # quoted or a block; libyaml's plain style is the empty text
        return written
    if written in _WORDS:
        return _WORDS[written]
    if _WHOLE.fullmatch(written):
        return whole_number(written)
    return real_number(written) if _REAL.fullmatch(written) else written
