"""Strict YAML: libyaml's events in, plain values out.

No aliases, anchors, tags, merge keys or repeated keys. Plain scalars follow YAML 1.2's core schema, so that `no`,
`1:30`, `010` and dates stay the text they are; a field that wants something else refuses them where they stand.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import yaml

from portal.kit.security.strict_parsing.documents import (
    Document,
    DocumentInvalid,
    ParseLimits,
    decode,
    document_error,
    nearest_line,
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
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    line = mark.line + 1 if mark is not None else None
    if said == _ESCAPE_OF_SURROGATE:
        return document_error(422, "bad_character", "Contains an incomplete character escape.", line=line)
    return document_error(400, "yaml_syntax", f"Not YAML: {visible(said, 200)}.", line=line)


class _Builder:
    """Builds values from events with its own counters, so that caps hold before memory is spent.

    Where it is, is kept as keys and numbers: pointers and lines are made when a problem has to be shown.
    """

    def __init__(self, content: str, limits: ParseLimits, *, noting: bool = False) -> None:
        self._where = _YamlLines(content, limits)
        self._events: Iterator[Any] = yaml.parse(content, Loader=yaml.CSafeLoader)
        self._limits = limits
        self._noting = noting
        self._nodes = 0
        self._path: list[str | int] = []
        self.lines: list[dict[str, int]] = []

    def documents(self) -> Iterator[Document]:
        found = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                found += 1
                if found > self._limits.documents:
                    raise document_error(
                        413, "too_many_documents", f"More than {self._limits.documents} documents in one text."
                    )
                self.lines.append({})
                value = self._node(next(self._events))
                yield Document(value, partial(self._where.of, found - 1))

    def _node(self, event: Any) -> Any:
        self._note(event)
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise too_many_nodes(self._limits, _line(event))
        if len(self._path) > self._limits.depth:
            raise too_deep(self._limits, _line(event))
        self._refuse_indirection(event)
        match event:
            case yaml.ScalarEvent():
                return _scalar(event)
            case yaml.SequenceStartEvent():
                return self._list()
            case _:
                return self._object()

    def _list(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._path.append(len(items))
            items.append(self._node(event))
            self._path.pop()
        return items

    def _object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event)
            self._path.append(key)
            if key in members:
                raise self._refused(event, "repeated_key", f"Duplicate key {visible(key)!r}.")
            self._note(event)
            members[key] = self._node(next(self._events))
            self._path.pop()
        return members

    def _key(self, event: Any) -> str:
        self._refuse_indirection(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refused(event, "bad_key", "Keys must be plain text.")
        if event.value == "<<" and not event.style:
            raise self._refused(event, "merge_key", "The merge key << is not supported. Write the members out.")
        return str(event.value)

    def _refuse_indirection(self, event: Any) -> None:
        """Aliases multiply, anchors serve only aliases, and tags construct objects: none has a use here."""
        if isinstance(event, yaml.AliasEvent):
            text = f"The alias *{visible(event.anchor)} is not supported. Write the value out."
            raise self._refused(event, "alias", text)
        if event.anchor is not None:
            raise self._refused(event, "anchor", f"The anchor &{visible(event.anchor)} is not allowed.")
        if event.tag is not None:
            raise self._refused(event, "tag", f"The tag {visible(event.tag)} is not allowed.")

    def _refused(self, event: Any, code: str, message: str) -> DocumentInvalid:
        return document_error(422, code, message, pointer=self._pointer(), line=_line(event))

    def _pointer(self) -> str:
        return "".join(f"/{token(part)}" for part in self._path)

    def _note(self, event: Any) -> None:
        """A member's line is its key's, which comes first."""
        if self._noting:
            self.lines[-1].setdefault(self._pointer(), _line(event))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


class _YamlLines:
    """The lines of a text's documents, looked up only when a problem has to be shown: it is read once more then."""

    def __init__(self, content: str, limits: ParseLimits) -> None:
        self._content = content
        self._limits = limits

    @cached_property
    def _found(self) -> list[dict[str, int]]:
        builder = _Builder(self._content, self._limits, noting=True)
        for _ in builder.documents():
            pass
        return builder.lines

    def of(self, document: int, pointer: str) -> int | None:
        """The line of a pointer, or of the nearest thing around it."""
        return nearest_line(self._found[document], pointer)


def _scalar(event: Any) -> Any:
    written: str = event.value
    if event.style:  # quoted or a block; libyaml's plain style is the empty text
        return written
    if written in _WORDS:
        return _WORDS[written]
    if _WHOLE.fullmatch(written):
        return whole_number(written)
    return real_number(written) if _REAL.fullmatch(written) else written
