"""Policies as values: how those of several scopes add up, and which rule a workload breaks. Pure.

Rules: of defaults the nearest scope's counts; of rules all hold, so a nearer scope never allows what a wider one
forbids. A default fills what was not requested; a rule is checked last, against the effective value.
Source: Run:ai's policies v2; `canEdit: false` means that the value stays what it is without anybody's wish.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scheduling.model.preemptibility import Preemptibility
from workloads.dictionary.rules.resolution import Effective, PolicyDefaults

PRIORITY: Final = "priorityClass"
PREEMPTIBILITY: Final = "preemptibility"
FIELDS: Final = (PRIORITY, PREEMPTIBILITY)
MODES: Final = (Preemptibility.PREEMPTIBLE.value, Preemptibility.NON_PREEMPTIBLE.value)


class PolicyKind(StrEnum):
    """What a policy is about: workloads of Run:ai's own types."""

    WORKSPACE = "workspace"
    TRAINING = "training"
    DISTRIBUTED = "distributed"
    INFERENCE = "inference"
    DISTRIBUTED_INFERENCE = "distributedInference"
    NIM_SERVICE = "nimService"


class Scope(StrEnum):
    """Where a policy holds, the widest first."""

    TENANT = "tenant"
    CLUSTER = "cluster"
    DEPARTMENT = "department"
    PROJECT = "project"


WIDTH: Final[Mapping[Scope, int]] = {scope: place for place, scope in enumerate(Scope)}
KIND_OF_TYPE: Final[Mapping[str, PolicyKind]] = {
    "Workspace": PolicyKind.WORKSPACE,
    "Training": PolicyKind.TRAINING,
    "Distributed": PolicyKind.DISTRIBUTED,
    "Inference": PolicyKind.INFERENCE,
    "HuggingFaceInference": PolicyKind.INFERENCE,
    "DistributedInference": PolicyKind.DISTRIBUTED_INFERENCE,
    "NIMInference": PolicyKind.NIM_SERVICE,
}
"""Types that no policy is about are those of manifests: policies do not apply to them."""


@dataclass(frozen=True, slots=True)
class ScopeRef:
    """One scope: the installation, a cluster, a department or a project. `name` as people know it."""

    scope: Scope = Scope.TENANT
    key: str = ""
    name: str = ""

    @property
    def words(self) -> str:
        """`department research`."""
        return f"{self.scope} {self.name}" if self.key else "the whole installation"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What one policy says of one field. `options` None: every value."""

    required: bool = False
    can_edit: bool = True
    options: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScopePolicy:
    """One scope's policy: defaults and rules by field."""

    place: ScopeRef
    defaults: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, FieldRule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldPolicy:
    """What holds for one field after all scopes, and whose word each part is."""

    default: str = ""
    default_of: ScopeRef | None = None
    required_of: ScopeRef | None = None
    locked_of: ScopeRef | None = None
    options: tuple[tuple[tuple[str, ...], ScopeRef], ...] = ()

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """What every list of options has, in the order of the nearest; None without any list."""
        if not self.options:
            return None
        *wider, (nearest, _place) = self.options
        return tuple(value for value in nearest if all(value in values for values, _of in wider))

    @property
    def ruled(self) -> bool:
        return bool(self.required_of or self.locked_of or self.options)

    @property
    def source(self) -> ScopeRef | None:
        """The nearest scope that has a rule here."""
        places = [each for each in (self.required_of, self.locked_of, *(of for _values, of in self.options)) if each]
        return max(places, key=lambda place: WIDTH[place.scope], default=None)

    def permits(self, value: str) -> bool:
        """Is it in every list? What is partly preemptible needs both modes."""
        needed = MODES if value == Preemptibility.SEMI_PREEMPTIBLE else (value,)
        return self.allowed is None or all(each in self.allowed for each in needed)


Merged = Mapping[str, FieldPolicy]
NOTHING: Final = FieldPolicy()


def merge(parts: Iterable[ScopePolicy]) -> Merged:
    """What holds where all of these apply, whatever order they come in."""
    ordered = sorted(parts, key=lambda part: WIDTH[part.place.scope])
    return {name: found for name in FIELDS if (found := _merged(name, ordered)) != NOTHING}


def _merged(name: str, parts: Sequence[ScopePolicy]) -> FieldPolicy:
    """`parts`: the widest first. A rule is the word of the widest scope that has it, a default that of the nearest."""
    defaults = [(part.defaults[name], part.place) for part in parts if part.defaults.get(name)]
    rules = [(part.rules[name], part.place) for part in parts if name in part.rules]
    default, default_of = defaults[-1] if defaults else ("", None)
    return FieldPolicy(
        default,
        default_of,
        required_of=next((place for rule, place in rules if rule.required), None),
        locked_of=next((place for rule, place in rules if not rule.can_edit), None),
        options=tuple((rule.options, place) for rule, place in rules if rule.options is not None),
    )


def defaults_in(merged: Merged) -> PolicyDefaults:
    priority, mode = merged.get(PRIORITY, NOTHING), merged.get(PREEMPTIBILITY, NOTHING)
    return PolicyDefaults(
        priority=priority.default or None,
        priority_of=priority.default_of.words if priority.default_of else "",
        preemptibility=Preemptibility(mode.default) if mode.default else None,
        preemptibility_of=mode.default_of.words if mode.default_of else "",
    )


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a workload breaks. `rule`: options, required or canEdit."""

    field: str
    rule: str
    place: ScopeRef
    details: str
    allowed: tuple[str, ...] = ()


def violations(effective: Effective, untouched: Effective | None, merged: Merged) -> list[Violation]:
    """Every broken rule. `untouched`: the pair without anybody's wish; None where there is none, so nothing to keep."""
    got = _values(effective)
    locked = _values(untouched) if untouched else {}
    requested = {PRIORITY: effective.priority_source, PREEMPTIBILITY: effective.preemptibility_source}
    return [
        found
        for name, policy in merged.items()
        for found in _broken(name, policy, got[name], locked.get(name, ""), source=requested[name])
    ]


def _values(pair: Effective) -> dict[str, str]:
    return {PRIORITY: pair.priority.canonical, PREEMPTIBILITY: str(pair.preemptibility)}


GIVEN: Final = frozenset({"explicit", "label", "pod template", "policy"})


def _broken(name: str, policy: FieldPolicy, value: str, locked: str, *, source: str) -> Iterator[Violation]:
    if policy.required_of and source not in GIVEN:
        yield _violation(name, "required", policy.required_of, f"{name} is required", policy.allowed)
    if policy.locked_of and locked and value != locked:
        sentence = f"{name} is locked to {locked} and cannot be {value}"
        yield _violation(name, "canEdit", policy.locked_of, sentence, (locked,))
    for values, place in policy.options:
        if not FieldPolicy(options=((values, place),)).permits(value):
            sentence = f"{name} {value} is not one of {', '.join(values)}"
            yield _violation(name, "options", place, sentence, policy.allowed)


def _violation(name: str, rule: str, place: ScopeRef, sentence: str, allowed: tuple[str, ...] | None) -> Violation:
    return Violation(name, rule, place, f"{sentence} (policy of {place.words}).", allowed or ())


def contradiction(merged: Merged) -> str:
    """Why nothing, or not the default, could be submitted; empty where that is not so."""
    for name, policy in merged.items():
        if policy.allowed == ():
            return f"No {name} is allowed: {_lists(policy)}."
        if policy.default and policy.default_of and not policy.permits(policy.default):
            return f"The default {name} {policy.default} of {policy.default_of.words} is not allowed: {_lists(policy)}."
    return ""


def _lists(policy: FieldPolicy) -> str:
    return "; ".join(f"{place.words} allows {', '.join(values)}" for values, place in policy.options)


def imposed(merged: Merged) -> Iterator[str]:
    """What a person should know before choosing, one sentence each."""
    for name, policy in merged.items():
        word = "Priority" if name == PRIORITY else "Preemptibility"
        if policy.default and policy.default_of:
            yield f"{word} defaults to {policy.default}: set by policy of {policy.default_of.words}."
        if policy.locked_of:
            yield f"{word} cannot be changed: set by policy of {policy.locked_of.words}."
        if policy.required_of:
            yield f"{word} is required: set by policy of {policy.required_of.words}."
        for values, place in policy.options:
            yield f"{word} must be {' or '.join(values)}: set by policy of {place.words}."
