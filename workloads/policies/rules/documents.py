"""A policy's document, `{defaults, rules}` in Run:ai's shape, as values and back. Pure.

What Rung does not hold people to is refused at its pointer: a policy that is kept and not enforced would be a false
promise. What their client always sends, and what is empty, is dropped.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from portal.kit.errors import Problem
from workloads.policies.rules.merge import (
    FIELDS,
    MODES,
    PRIORITY,
    FieldPolicy,
    FieldRule,
    Merged,
    PolicyKind,
    Scope,
    ScopePolicy,
    ScopeRef,
)

Document = dict[str, Any]
Known = Callable[[str], str | None]
"""The dictionary's own name for a priority or an alias; None where there is no such priority."""
READ_ONLY: Final = frozenset({"status"})
ALWAYS_SENT: Final[Mapping[PolicyKind, Mapping[str, Any]]] = {
    PolicyKind.DISTRIBUTED: {"slotsPerWorker": 1, "sshAuthMountPath": "/root/.ssh"},
    PolicyKind.DISTRIBUTED_INFERENCE: {
        "restartPolicy": "RecreateGroupOnPodRestart",
        "startupPolicy": "LeaderCreated",
        "workers": 0,
        "replicas": 1,
    },
    PolicyKind.NIM_SERVICE: {"replicas": 1},
}
WORKER, MASTER = "worker", "master"
MOST_OPTIONS: Final = 50
LONGEST: Final = 200
RULE_KEYS: Final = ("required", "canEdit", "options")


def read_document(kind: PolicyKind, sent: object, known: Known) -> tuple[Document, list[Problem]]:
    """The document as it is kept, and everything that is wrong with it at pointers below `/policy`."""
    reader = _Reader(kind, known)
    document = reader.document(sent)
    return document, reader.problems


class _Reader:
    """Walks one document and collects its problems."""

    def __init__(self, kind: PolicyKind, known: Known) -> None:
        self.kind, self.known = kind, known
        self.problems: list[Problem] = []

    def refuse(self, pointer: str, code: str, message: str, allowed: tuple[str, ...] = ()) -> None:
        self.problems.append(Problem(pointer, code, message, allowed))

    def document(self, sent: object) -> Document:
        found: Document = {}
        for key, value in self.members(sent, "/policy"):
            pointer = f"/policy/{key}"
            if key == "defaults":
                found[key] = self.replicas(value, pointer, self.default)
            elif key == "rules":
                found[key] = self.replicas(value, pointer, self.rule)
            elif key not in READ_ONLY and not _empty(value):
                self.refuse(pointer, "unsupported", "Rung cannot enforce this. Remove it.", ("defaults", "rules"))
        self.one_pair(found)
        if not self.problems:
            self.agree(found)
        return {key: value for key, value in found.items() if value}

    def members(self, sent: object, pointer: str) -> Iterator[tuple[str, Any]]:
        """Keys and values of an object, without those that are null."""
        if isinstance(sent, dict):
            yield from ((str(key)[:100], value) for key, value in sent.items() if value is not None)
        elif sent is not None:
            self.refuse(pointer, "wrong_type", "Must be an object.")

    def replicas(self, sent: object, pointer: str, read: Callable[[str, Any, str], Any]) -> Document:
        """Of a distributed job the worker's and the master's fields, else the fields themselves."""
        if self.kind is not PolicyKind.DISTRIBUTED:
            return self.fields(sent, pointer, read)
        found = {}
        for key, value in self.members(sent, pointer):
            if key in {WORKER, MASTER}:
                found[key] = self.fields(value, f"{pointer}/{key}", read)
            else:
                self.refuse(f"{pointer}/{key}", "unknown_field", "Unknown field.", (WORKER, MASTER))
        return {key: value for key, value in found.items() if value}

    def fields(self, sent: object, pointer: str, read: Callable[[str, Any, str], Any]) -> Document:
        found = {}
        always = ALWAYS_SENT.get(self.kind, {})
        for key, value in self.members(sent, pointer):
            if key in FIELDS:
                found[key] = read(key, value, f"{pointer}/{key}")
            elif not _empty(value) and not (key in always and always[key] == value):
                message = "Rung's policies cover priorityClass and preemptibility only. Remove this field."
                self.refuse(f"{pointer}/{key}", "unsupported", message, FIELDS)
        return {key: value for key, value in found.items() if value not in (None, {})}

    def default(self, name: str, value: Any, pointer: str) -> str | None:
        """A priority's name or a mode."""
        found = self.value_of(name, value)
        if found is None:
            code = "priority_unknown" if name == PRIORITY else "preemptibility_unknown"
            allowed = () if name == PRIORITY else MODES
            self.refuse(pointer, code, f"{str(value)[:80]!r} is not a valid {name}.", allowed)
        return found

    def value_of(self, name: str, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        if name == PRIORITY:
            return value if self.known(value) else None
        return value if value in MODES else None

    def rule(self, name: str, value: Any, pointer: str) -> Document:
        """`{required, canEdit, options}`; where the rule came from is not the sender's to say."""
        found: Document = {}
        for key, part in self.members(value, pointer):
            if key == "options":
                found[key] = self.options(name, part, f"{pointer}/options")
            elif key in RULE_KEYS:
                found[key] = part
                if not isinstance(part, bool):
                    self.refuse(f"{pointer}/{key}", "wrong_type", f"{key} must be true or false.")
            elif key != "sourceOfRule":
                self.refuse(f"{pointer}/{key}", "unknown_field", "Unknown rule.", RULE_KEYS)
        return found

    def options(self, name: str, sent: Any, pointer: str) -> list[Document]:
        if not isinstance(sent, list) or not 0 < len(sent) <= MOST_OPTIONS:
            self.refuse(pointer, "bad_options", f"Must be a list of 1 to {MOST_OPTIONS} options, each with a value.")
            return []
        found = [self.option(name, each, f"{pointer}/{index}") for index, each in enumerate(sent)]
        values = [each.get("value") for each in found]
        if not self.problems and len(set(values)) != len(values):
            self.refuse(pointer, "repeated", "Duplicate option.")
        return found

    def option(self, name: str, sent: Any, pointer: str) -> Document:
        found = dict(self.members(sent, pointer))
        if self.value_of(name, found.get("value")) is None:
            code = "priority_unknown" if name == PRIORITY else "preemptibility_unknown"
            self.refuse(f"{pointer}/value", code, f"{str(found.get('value'))[:80]!r} is not a valid {name}.")
        shown = found.get("displayed", "")
        if not isinstance(shown, str) or len(shown) > LONGEST:
            self.refuse(f"{pointer}/displayed", "wrong_type", f"Must be a text of up to {LONGEST} characters.")
        for key in found.keys() - {"value", "displayed"}:
            self.refuse(f"{pointer}/{key}", "unknown_field", "Unknown field.", ("value", "displayed"))
        return found

    def one_pair(self, found: Document) -> None:
        """A gang has one pair: the master says what the worker says, or nothing."""
        for part, sides in found.items():
            worker = sides.get(WORKER, {})
            for name, value in sides.get(MASTER, {}).items():
                if worker.get(name) != value:
                    message = "Master and workers of a distributed job share one priority and preemptibility."
                    self.refuse(f"/policy/{part}/{MASTER}/{name}", "one_pair", message)

    def agree(self, found: Document) -> None:
        """A policy's own default is one of its own options."""
        part = part_of(self.kind, ScopeRef(), found, self.known)
        for name, value in part.defaults.items():
            options = part.rules.get(name, FieldRule()).options
            if options is not None and value not in options:
                pointer = f"/policy/defaults/{f'{WORKER}/' if self.kind is PolicyKind.DISTRIBUTED else ''}{name}"
                self.refuse(pointer, "not_an_option", f"{value} is not one of this policy's options.", options)


def part_of(kind: PolicyKind, place: ScopeRef, document: Document, known: Known) -> ScopePolicy:
    """A kept document as values, every priority under the dictionary's own name."""

    def own(name: str, value: str) -> str:
        return (known(value) or value) if name == PRIORITY else value

    defaults, rules = (flat(kind, document.get(each, {})) for each in ("defaults", "rules"))
    return ScopePolicy(
        place,
        defaults={name: own(name, value) for name, value in defaults.items()},
        rules={
            name: FieldRule(
                bool(rule.get("required", False)),
                bool(rule.get("canEdit", True)),
                tuple(own(name, each["value"]) for each in rule["options"]) if "options" in rule else None,
            )
            for name, rule in rules.items()
        },
    )


def named_in(document: Document) -> set[str]:
    """Every priority that a kept document names."""
    names: set[str] = set()
    for part in ("defaults", "rules"):
        sides = document.get(part, {})
        for side in (sides, sides.get(WORKER, {})):
            priority = side.get(PRIORITY)
            names |= (
                {priority}
                if isinstance(priority, str)
                else {each["value"] for each in (priority or {}).get("options", ())}
            )
    return names


def merged_json(kind: PolicyKind, merged: Merged) -> Document:
    """What holds, in the document's shape, each rule with its source."""
    defaults = {name: policy.default for name, policy in merged.items() if policy.default}
    rules = {name: _rule_json(policy) for name, policy in merged.items() if policy.ruled}
    return {"defaults": _nested(kind, defaults), "rules": _nested(kind, rules)}


def patched(document: Document, change: object) -> Any:
    """The document with the change merged in: an absent key stays, null takes away."""
    if not isinstance(change, dict):
        return change
    found = dict(document)
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            old = found.get(key)
            found[key] = patched(old if isinstance(old, dict) else {}, value)
    return found


def without(kind: PolicyKind, document: Document, paths: list[str]) -> tuple[Document, list[Problem]]:
    """The document without default and rule of the named fields, such as `priorityClass` or `worker.priorityClass`."""
    sides = [f"{side}." for side in (WORKER, MASTER)] if kind is PolicyKind.DISTRIBUTED else [""]
    known = tuple(f"{side}{name}" for side in sides for name in FIELDS)
    problems = [
        Problem(f"/reset/{index}", "unknown_field", f"{path[:80]!r} is not a field of this policy.", known)
        for index, path in enumerate(paths)
        if path not in known
    ]
    found = document
    for path in paths:
        change: Any = None
        for key in reversed(path.split(".")):
            change = {key: change}
        found = patched(found, {"defaults": change, "rules": change})
    return found, problems


def place_json(place: ScopeRef) -> Document:
    """`{scope, projectId | departmentId | clusterId}`; a project's id is an integer here, and only here."""
    body: Document = {"scope": str(place.scope)}
    if place.scope is not Scope.TENANT:
        body[f"{place.scope}Id"] = int(place.key) if place.scope is Scope.PROJECT else place.key
    return body


def _rule_json(policy: FieldPolicy) -> Document:
    body: Document = {}
    if policy.required_of:
        body["required"] = True
    if policy.locked_of:
        body["canEdit"] = False
    if policy.allowed is not None:
        body["options"] = [{"value": value} for value in policy.allowed]
    if policy.source:
        body["sourceOfRule"] = place_json(policy.source)
    return body


def flat(kind: PolicyKind, part: Document) -> Document:
    """Defaults or rules by field, wherever this kind keeps them."""
    found: Document = part.get(WORKER, {}) if kind is PolicyKind.DISTRIBUTED else part
    return found


def _nested(kind: PolicyKind, found: Document) -> Document:
    return {WORKER: found} if kind is PolicyKind.DISTRIBUTED and found else found


def _empty(value: Any) -> bool:
    """Null, or lists and objects of nothing."""
    if isinstance(value, dict):
        return all(_empty(part) for part in value.values())
    return value is None or value == []
