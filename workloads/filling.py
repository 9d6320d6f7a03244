"""What one body leaves out is taken from the next: a submission from its template, a template from its assets. Pure.

A field that is there wins, an empty one too; null says nothing. Objects are filled field by field, and lists whose
items have names item by item: `exclude: true` keeps a name out. Any other list is taken whole or not at all.
"""

import copy
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from workloads.intake.problems import token

Values = Mapping[str, Any]
NAMED: Final = frozenset({"environmentVariables", "labels", "annotations"})
"""Lists whose items have a `name`."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values, and whose they are: `template notebook`."""

    title: str
    values: Values


def fill(own: Values, layers: Iterable[Layer], *, at: str, known: Container[str]) -> tuple[dict[str, Any], "Sources"]:
    """The body with what the layers add, the first before the next, and by pointer below `at` which layer it was.

    `known`: fields that the body has at all; others are left where they are.
    """
    found, sources = copy.deepcopy(dict(own)), Sources()
    for layer in layers:
        values = {name: value for name, value in layer.values.items() if name in known}
        _add(found, values, layer.title, at, sources)
    return found, sources


class Sources(dict[str, str]):
    """By pointer: whose a value is."""

    def of(self, pointer: str) -> str:
        """Whose the value there is, or the one it is part of; empty for the body's own."""
        while pointer:
            if pointer in self:
                return self[pointer]
            pointer = pointer.rpartition("/")[0]
        return ""


def _add(into: dict[str, Any], values: Values, title: str, at: str, sources: Sources) -> None:
    said = frozenset(name for name, value in into.items() if value is not None)
    for name, value in values.items():
        pointer = f"{at}/{token(name)}"
        own = into.get(name)
        if value is None or _settled(name, said):
            continue
        if own is None:
            into[name], sources[pointer] = copy.deepcopy(value), title
        elif isinstance(own, dict) and isinstance(value, Mapping):
            _add(own, value, title, pointer, sources)
        elif name in NAMED and isinstance(own, list) and isinstance(value, list):
            _add_items(own, value, title, pointer, sources)


def _settled(name: str, said: frozenset[str]) -> bool:
    """What belongs together comes from one place: the fields of a GPU request, and arguments with their command."""
    if name.startswith("gpu"):
        return any(each.startswith("gpu") for each in said)
    return name == "args" and "command" in said


def _add_items(own: list[Any], values: Iterable[Any], title: str, at: str, sources: Sources) -> None:
    names = {each.get("name") for each in own if isinstance(each, Mapping)}
    for each in values:
        if isinstance(each, Mapping) and each.get("name") not in names:
            sources[f"{at}/{len(own)}"] = title
            own.append(copy.deepcopy(each))
