"""Rules that check one value and return it rebuilt, and the report that collects their problems.

A rule takes the value and its `ObjectKey` and returns what goes into the rebuilt object, or `ABSENT`. A refusal is
noted in the report under the place's pointer, so that one reading finds every problem of a document.
"""

import copy
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from portal.kit.security.strict_json import DocumentInvalid as IntakeRefused
from portal.kit.security.strict_json import (
    DocumentProblem,
    Unreadable,
    no_line,
    token,
    visible,
)
from workloads.dictionary.rules.resolution import Dictionary

MOST_PROBLEMS: Final = 50


BIDI_CONTROLS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass
class ProblemReport:
    """Collects the problems and warnings of one document until there are too many to be of use."""

    line_of: Callable[[str], int | None] = no_line
    document: int = 0

    def __post_init__(self) -> None:
        self._problems: list[DocumentProblem] = []
        self._warnings: list[str] = []
        self.pod_priority: str | None = None
        """The first priority that a pod template of the document names."""

    def add(self, pointer: str, code: str, message: str, allowed: Iterable[str] = ()) -> None:
        """Note one problem; the fiftieth ends the reading."""
        problem = DocumentProblem(pointer, code, message, self.line_of(pointer), tuple(allowed), self.document)
        if problem not in self._problems:
            self._problems.append(problem)
        if len(self._problems) >= MOST_PROBLEMS:
            raise IntakeRefused(422, self._problems)

    def warn(self, message: str) -> None:
        """Note what was changed or left out without refusing it."""
        if message not in self._warnings and len(self._warnings) < MOST_PROBLEMS:
            self._warnings.append(message)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    @property
    def problems(self) -> tuple[DocumentProblem, ...]:
        return tuple(self._problems)

    def settle(self) -> None:
        """Refuse the document if anything was noted."""
        if self._problems:
            raise IntakeRefused(422, self._problems)


@dataclass(frozen=True, slots=True)
class ProjectGrants:
    """The submitting project. Every grant is empty unless an admin gave it; "*" in `allowed_registries` means any.

    `priorities` and `categories`: what a workload may name; None leaves that to the services.
    """

    namespace: str
    priorities: Dictionary | None = None
    categories: tuple[str, ...] | None = None
    allowed_registries: tuple[str, ...] = ()
    managed_prefixes: tuple[str, ...] = ()
    allow_driver_capabilities_all: bool = False
    secrets: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    mig_profiles: tuple[str, ...] = ()
    node_selector_keys: tuple[str, ...] = ()
    toleration_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explicit:
    """What the form, the API or the command line asked for outright; it beats the manifest's labels and name."""

    priority: str | None = None
    preemptibility: str | None = None
    category: str | None = None
    name: str | None = None
    prefix: bool = False
    """The name, of the one document that there is, is completed at submission."""


ABSENT: Final[Any] = object()


LARGEST: Final = 2**31 - 1


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufeff\ufffe\uffff]")


class Location:
    """The place of a value and whose it is. A document has thousands: the pointer is made when it is asked for."""

    __slots__ = ("_above", "_key", "report", "scope")

    def __init__(self, root: str, report: ProblemReport, scope: ProjectGrants) -> None:
        self._above: Location | None = None
        self._key: object = root
        self.report = report
        self.scope = scope

    @property
    def pointer(self) -> str:
        """The JSON pointer from the root."""
        return str(self._key) if self._above is None else f"{self._above.pointer}/{token(self._key)}"

    def at(self, key: object) -> "Location":
        """The place of a member or item."""
        inner = Location.__new__(Location)
        inner._above, inner._key, inner.report, inner.scope = self, key, self.report, self.scope
        return inner

    def refuse(self, code: str, message: str, allowed: Iterable[str] = ()) -> Any:
        self.report.add(self.pointer, code, message, allowed)
        return ABSENT


Rule = Callable[[Any, Location], Any]


Fields = Mapping[str, Rule]


def wrong_type(value: object, place: Location, wanted: str) -> Any:
    """Refuse a value of another type, with what was found."""
    if isinstance(value, Unreadable):
        return place.refuse(value.code, value.message)
    hint = (
        f" Write it in quotes: {visible(value)!r}." if wanted == "a string" and isinstance(value, (int, float)) else ""
    )
    return place.refuse("wrong_type", f"Expected {wanted}, found {type_name(value)}.{hint}")


def type_name(value: object) -> str:
    """A JSON type's name for people."""
    names = {
        bool: "true or false",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null" if value is None else "an object")


def storable(value: str, place: Location) -> bool:
    """Refuse what no database column and no terminal should hold: NUL, controls, lone surrogates, reordering marks."""
    if found := _CONTROL.search(value):
        place.refuse("bad_character", f"Contains the character {visible(found.group())}, which is not allowed.")
    elif BIDI_CONTROLS.intersection(value):
        place.refuse("bad_character", "Contains a character that reorders text.")
    else:
        return True
    return False


def text(longest: int = 1024, pattern: str = "", hint: str = "", *, code: str = "bad_value", shortest: int = 0) -> Rule:
    """A string, kept verbatim; `pattern` must match all of it and `hint` says in words what it wants."""
    regex = re.compile(pattern) if pattern else None

    def check(value: Any, place: Location) -> Any:
        if not isinstance(value, str):
            return wrong_type(value, place, "a string")
        if not shortest <= len(value) <= longest:
            return place.refuse("bad_length", f"{len(value)} characters; must be {shortest} to {longest}.")
        if not storable(value, place):
            return ABSENT
        if regex is not None and not regex.fullmatch(value):
            return place.refuse(code, f"{visible(value)!r} is not {hint}.")
        return value

    return check


def integer(least: int = 0, most: int = LARGEST) -> Rule:
    """A whole number, as a number and not as text."""

    def check(value: Any, place: Location) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return wrong_type(value, place, "an integer")
        if not least <= value <= most:
            return place.refuse("out_of_range", f"{visible(value)} is not between {least} and {most}.")
        return value

    return check


def boolean(value: Any, place: Location) -> Any:
    """True or false."""
    return value if isinstance(value, bool) else wrong_type(value, place, "true or false")


def choice(*names: str) -> Rule:
    """One of a few words, compared exactly."""

    def check(value: Any, place: Location) -> Any:
        if not isinstance(value, str):
            return wrong_type(value, place, "a string")
        if value not in names:
            return place.refuse("not_allowed", f"{visible(value)!r} is not one of {', '.join(names)}.", names)
        return value

    return check


def only(allowed: bool | str, why: str, code: str = "forbidden_value") -> Rule:  # noqa: FBT001  # the one value is the rule
    """A field that may say one harmless thing and nothing else."""
    written = str(allowed).lower() if isinstance(allowed, bool) else allowed

    def check(value: Any, place: Location) -> Any:
        if value is allowed or (isinstance(allowed, str) and value == allowed):
            return allowed
        return place.refuse(code, f"{why} Remove it or set {written}.", (written,))

    return check


def forbidden(why: str, code: str = "forbidden_field") -> Rule:
    """A field that is known and never taken."""

    def check(_value: Any, place: Location) -> Any:
        return place.refuse(code, why)

    return check


def either(*rules: tuple[type, Rule]) -> Rule:
    """The rule of the value's own type, such as a port by number or by name."""

    def check(value: Any, place: Location) -> Any:
        for kind, rule in rules:
            if type(value) is kind:
                return rule(value, place)
        return wrong_type(value, place, " or ".join(type_name(kind()) for kind, _ in rules))

    return check


def both(*rules: Rule) -> Rule:
    """Every rule in turn on the rebuilt value; the first refusal ends it."""

    def check(value: Any, place: Location) -> Any:
        for rule in rules:
            value = rule(value, place)
            if value is ABSENT:
                break
        return value

    return check


def listing(rule: Rule, most: int = 100, *, least: int = 0, unique: str = "") -> Rule:
    """A list, each item by the rule; `unique` names the member that may not repeat."""

    def check(value: Any, place: Location) -> Any:
        if not isinstance(value, list):
            return wrong_type(value, place, "a list")
        if not least <= len(value) <= most:
            return place.refuse("bad_length", f"{len(value)} items; must be {least} to {most}.")
        items = [rule(item, place.at(index)) for index, item in enumerate(value)]
        if unique:
            _check_unique(items, unique, place)
        return [item for item in items if item is not ABSENT]

    return check


def _check_unique(items: list[Any], member: str, place: Location) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get(member) if isinstance(item, dict) else None
        if name in seen:
            place.at(index).at(member).refuse("repeated", f"Duplicate {member} {visible(name)!r}.")
        if name is not None:
            seen.add(name)


def mapping(key: Rule, value: Rule, most: int = 100) -> Rule:

    def check(given: Any, place: Location) -> Any:
        if not isinstance(given, Mapping):
            return wrong_type(given, place, "an object")
        if len(given) > most:
            return place.refuse("bad_length", f"{len(given)} members; the maximum is {most}.")
        rebuilt = {}
        for name, member in given.items():
            checked = key(name, place.at(name))
            result = value(member, place.at(name)) if checked is not ABSENT else ABSENT
            if result is not ABSENT:
                rebuilt[checked] = result
        return rebuilt

    return check


def table(
    fields: Fields, *, required: Iterable[str] = (), one_of: Iterable[str] = (), fill: Mapping[str, Any] | None = None
) -> Rule:
    """An object of known fields. A null counts as left out; `one_of` are fields of which exactly one must be given."""
    needed, exactly_one = tuple(required), tuple(one_of)

    def check(given: Any, place: Location) -> Any:
        if not isinstance(given, Mapping):
            return wrong_type(given, place, "an object")
        rebuilt = copy.deepcopy(dict(fill)) if fill else {}
        for name, value in given.items():
            result = _member(name, value, fields, place)
            if result is not ABSENT:
                rebuilt[name] = result
        present = {name for name in given if given[name] is not None}
        _check_required(needed, exactly_one, present, place)
        return rebuilt

    return check


def _member(name: Any, value: Any, fields: Fields, place: Location) -> Any:
    rule = fields.get(name) if isinstance(name, str) else None
    if rule is None:
        similar = difflib.get_close_matches(visible(name), fields, n=3, cutoff=0.75)
        also = f" Did you mean {' or '.join(similar)}?" if similar else ""
        return place.at(name).refuse(
            "unknown_field", f"{visible(name)!r} is not supported here.{also}", similar or sorted(fields)
        )
    return ABSENT if value is None else rule(value, place.at(name))


def _check_required(required: tuple[str, ...], one_of: tuple[str, ...], present: set[str], place: Location) -> None:
    for name in required:
        if name not in present:
            place.at(name).refuse("required", f"{name} is required.")
    given = [name for name in one_of if name in present]
    if one_of and len(given) != 1:
        found = " and ".join(given) or "none"
        place.refuse("exactly_one", f"Use exactly one of {', '.join(one_of)}; found {found}.", one_of)
