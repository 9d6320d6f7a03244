"""Effective priority and preemptibility of a workload, with the source of each and everything that was discarded.

Source of the rules: Rung's priority rules (docs/model.md). Sources, strongest first: explicit (form, API, CLI), label
(manifest), pod template (its priorityClassName, priority only), policy (the default of a scope's policy), type (the
type's default), threshold (a value of 100 or more is non-preemptible).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from scheduling.model.preemptibility import THRESHOLD, Preemptibility, by_value

SYSTEM_PREFIX: Final = "system-"

EXPLICIT_PRIORITY: Final = "priority"
LABEL_PRIORITY: Final = "labels.priorityClassName"
EXPLICIT_PREEMPTIBILITY: Final = "preemptibility"
LABEL_PREEMPTIBILITY: Final = "labels.kai.scheduler/preemptibility"


class Source(StrEnum):
    """Where an effective value came from."""

    EXPLICIT = "explicit"
    LABEL = "label"
    POD_TEMPLATE = "pod template"
    POLICY = "policy"
    TYPE = "type"
    THRESHOLD = "threshold"


CHOSEN: Final = frozenset({Source.EXPLICIT, Source.LABEL, Source.POD_TEMPLATE})
"""Sources that choose a priority; then the threshold decides on preemptibility, not the type."""


@dataclass(frozen=True, slots=True)
class PriorityEntry:
    """One dictionary entry. An alias is accepted wherever a name is, but not offered."""

    name: str
    value: int
    preemption_policy: str = "PreemptLowerPriority"
    alias_of: str | None = None

    @property
    def by_threshold(self) -> Preemptibility:
        """What follows from the value alone."""
        return by_value(self.value)

    @property
    def canonical(self) -> str:
        return self.alias_of or self.name


class Dictionary:
    """The priorities a workload may name."""

    def __init__(self, entries: Iterable[PriorityEntry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    def __iter__(self) -> Iterator[PriorityEntry]:
        return iter(self._entries.values())

    def lookup(self, name: str) -> PriorityEntry | None:
        return self._entries.get(name)

    def knows(self, name: str) -> bool:
        """May a workload name it? Names that Kubernetes reserves are never known."""
        return not name.startswith(SYSTEM_PREFIX) and name in self._entries

    def same(self, name: str, other: str) -> bool:
        """Do both names mean one entry?"""
        return self._canonical(name) == self._canonical(other)

    def _canonical(self, name: str) -> str:
        entry = self.lookup(name)
        return entry.canonical if entry else name

    def unknown(self, name: str) -> str:
        """The message for a name that is not known."""
        return f"Priority {name!r} is not known. Allowed: {', '.join(self.names)}."

    @property
    def names(self) -> tuple[str, ...]:
        """Offered names, weakest first; aliases are accepted but not offered."""
        offered = sorted((entry for entry in self if entry.alias_of is None), key=lambda entry: entry.value)
        return tuple(entry.name for entry in offered)


@dataclass(frozen=True, slots=True)
class TypeDefaults:
    """What a workload type brings along. `fixed`: no other value may be chosen (NVCF)."""

    name: str
    priority: str | None
    preemptibility: Preemptibility | None
    fixed: bool = False


NVCF_NAMESPACE: Final = "nvcf-backend"
"""Namespace of the project of NVIDIA Cloud Functions: all of its workloads have one pair, whatever is asked for."""
NVCF_PAIR: Final = TypeDefaults(
    f"the project bound to {NVCF_NAMESPACE}", "very-high", Preemptibility.NON_PREEMPTIBLE, fixed=True
)


@dataclass(frozen=True, slots=True)
class PolicyDefaults:
    """What policies fill in where nothing was asked for. `…_of` says whose policy it was: "department research"."""

    priority: str | None = None
    priority_of: str = ""
    preemptibility: Preemptibility | None = None
    preemptibility_of: str = ""


NO_POLICY: Final = PolicyDefaults()


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, by source. `pod_priority_class`: (pointer, name) of pod templates, all of one entry."""

    explicit_priority: str | None = None
    label_priority: str | None = None
    explicit_preemptibility: str | None = None
    label_preemptibility: str | None = None
    pod_priority_class: tuple[tuple[str, str], ...] = ()

    @property
    def template_priority(self) -> str | None:
        """What the pod templates name."""
        return next((name for _pointer, name in self.pod_priority_class), None)


@dataclass(frozen=True, slots=True)
class Discarded:
    """A value that was given and not used. `source` is label, or the pointer of a pod template."""

    field: str
    source: str
    value: str
    because: str


@dataclass(frozen=True, slots=True)
class ResolutionWarning:  # `Warning` would shadow the built-in
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Effective:
    """The one pair the workload runs with."""

    priority: PriorityEntry
    priority_source: Source
    preemptibility: Preemptibility
    preemptibility_source: Source
    discarded: tuple[Discarded, ...] = field(default=())
    warnings: tuple[ResolutionWarning, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was resolved. Codes: priority_required, priority_unknown, preemptibility_unknown, priority_fixed."""

    code: str
    field: str
    message: str
    allowed: tuple[str, ...] = ()


def resolve(
    request: Request, *, defaults: TypeDefaults, dictionary: Dictionary, policy: PolicyDefaults = NO_POLICY
) -> Effective | Refusal:
    """Find the effective pair.

    1. refuse what may not be asked for, also where a stronger source would win
    2. priority: explicit, else label, else pod template, else policy, else type default, else refuse
    3. preemptibility: explicit, else label, else policy, else threshold if 2 was chosen, else type default, else
       threshold
    """
    if refusal := _refusal(request, defaults, dictionary):
        return refusal
    policy = NO_POLICY if defaults.fixed else policy
    chosen = _priority(request, defaults, dictionary, policy)
    if chosen is None:
        return Refusal(
            "priority_required",
            EXPLICIT_PRIORITY,
            f"{defaults.name} has no default priority: choose one of {', '.join(dictionary.names)}.",
            dictionary.names,
        )
    priority, priority_source = chosen
    preemptibility, preemptibility_source = _preemptibility(request, defaults, policy, priority, priority_source)
    draft = Effective(priority, priority_source, preemptibility, preemptibility_source)
    draft = replace(draft, discarded=tuple(_discarded(request, defaults, dictionary, draft)))
    warnings = tuple(_warnings(defaults, draft)) or tuple(_still_explicit(defaults, draft))
    return replace(draft, warnings=(*_by_policy(policy, draft), *warnings))


def _refusal(request: Request, defaults: TypeDefaults, dictionary: Dictionary) -> Refusal | None:
    if defaults.fixed:
        explicit = (
            (EXPLICIT_PRIORITY, request.explicit_priority),
            (EXPLICIT_PREEMPTIBILITY, request.explicit_preemptibility),
        )
        for name, value in explicit:
            if value is not None:
                message = f"The {name} of {defaults.name} is fixed and cannot be chosen."
                return Refusal("priority_fixed", name, message)
    return _unknown_priority(request, dictionary) or _unknown_preemptibility(request)


def _unknown_priority(request: Request, dictionary: Dictionary) -> Refusal | None:
    named = (
        (EXPLICIT_PRIORITY, request.explicit_priority),
        (LABEL_PRIORITY, request.label_priority),
        *request.pod_priority_class,
    )
    for pointer, name in named:
        if name is not None and not dictionary.knows(name):
            return Refusal("priority_unknown", pointer, dictionary.unknown(name), dictionary.names)
    return None


def _unknown_preemptibility(request: Request) -> Refusal | None:
    allowed = tuple(Preemptibility)
    given = (
        (EXPLICIT_PREEMPTIBILITY, request.explicit_preemptibility),
        (LABEL_PREEMPTIBILITY, request.label_preemptibility),
    )
    for pointer, value in given:
        if value is not None and value not in allowed:
            message = f"Preemptibility {value!r} is not known. Allowed: {', '.join(allowed)}."
            return Refusal("preemptibility_unknown", pointer, message, allowed)
    return None


def _priority(
    request: Request, defaults: TypeDefaults, dictionary: Dictionary, policy: PolicyDefaults
) -> tuple[PriorityEntry, Source] | None:
    wished = Request() if defaults.fixed else request
    ladder = (
        (request.explicit_priority, Source.EXPLICIT),
        (wished.label_priority, Source.LABEL),
        (wished.template_priority, Source.POD_TEMPLATE),
        (policy.priority, Source.POLICY),
        (defaults.priority, Source.TYPE),
    )
    for name, source in ladder:
        if name is not None and (entry := dictionary.lookup(name)):
            return entry, source
    return None


def _preemptibility(
    request: Request, defaults: TypeDefaults, policy: PolicyDefaults, priority: PriorityEntry, priority_source: Source
) -> tuple[Preemptibility, Source]:
    label = None if defaults.fixed else request.label_preemptibility
    if request.explicit_preemptibility is not None:
        return Preemptibility(request.explicit_preemptibility), Source.EXPLICIT
    if label is not None:
        return Preemptibility(label), Source.LABEL
    if policy.preemptibility is not None:
        return policy.preemptibility, Source.POLICY
    if priority_source not in CHOSEN and defaults.preemptibility is not None:
        return defaults.preemptibility, Source.TYPE
    return priority.by_threshold, Source.THRESHOLD


def _discarded(
    request: Request, defaults: TypeDefaults, dictionary: Dictionary, chosen: Effective
) -> Iterator[Discarded]:
    """Every value that differs from the effective one; an equal value is quiet."""
    why = f"fixed for {defaults.name}" if defaults.fixed else ""
    named = ((str(Source.LABEL), request.label_priority), *request.pod_priority_class)
    for source, name in named:
        if name is not None and not dictionary.same(name, chosen.priority.name):
            because = f"the {chosen.priority_source} value {chosen.priority.name} applies"
            yield Discarded(EXPLICIT_PRIORITY, source, name, why or because)
    label = request.label_preemptibility
    if label is not None and label != chosen.preemptibility:
        because = f"the {chosen.preemptibility_source} value {chosen.preemptibility} applies"
        yield Discarded(EXPLICIT_PREEMPTIBILITY, Source.LABEL, label, why or because)


def _warnings(defaults: TypeDefaults, chosen: Effective) -> Iterator[ResolutionWarning]:
    """What a person should see beside the pair."""
    if chosen.preemptibility_source is Source.TYPE:
        yield from _typed(chosen)
    elif chosen.preemptibility_source is Source.THRESHOLD:
        yield from _by_threshold(defaults, chosen)
    else:
        yield from _against_threshold(chosen)


def _by_policy(policy: PolicyDefaults, chosen: Effective) -> Iterator[ResolutionWarning]:
    """Whose policy it was, since the source alone does not tell."""
    if chosen.priority_source is Source.POLICY:
        message = f"Priority {chosen.priority.name}: set by policy of {policy.priority_of}."
        yield ResolutionWarning("set_by_policy", message)
    if chosen.preemptibility_source is Source.POLICY:
        message = f"{str(chosen.preemptibility).capitalize()}: set by policy of {policy.preemptibility_of}."
        yield ResolutionWarning("set_by_policy", message)


def _still_explicit(defaults: TypeDefaults, chosen: Effective) -> Iterator[ResolutionWarning]:
    """Warn that an explicit value equals the default; only where there is no other warning."""
    explicit = chosen.priority_source is Source.EXPLICIT and not chosen.discarded
    if explicit and chosen.priority.name == defaults.priority:
        yield ResolutionWarning("equals_type_default", "Same as the type's default, but set explicitly.")


def _typed(chosen: Effective) -> Iterator[ResolutionWarning]:
    if chosen.preemptibility is chosen.priority.by_threshold is Preemptibility.NON_PREEMPTIBLE:
        yield ResolutionWarning("in_quota_only", "Non-preemptible: runs only within the deserved quota.")


def _by_threshold(defaults: TypeDefaults, chosen: Effective) -> Iterator[ResolutionWarning]:
    if defaults.preemptibility in {None, chosen.preemptibility}:
        return
    effect = (
        "it can no longer use over-quota resources"
        if chosen.preemptibility is Preemptibility.NON_PREEMPTIBLE
        else "it may be evicted"
    )
    yield ResolutionWarning(
        "differs_from_type",
        f"{defaults.name} is {defaults.preemptibility} by default; "
        f"priority {chosen.priority.name} ({chosen.priority.value}) makes it {chosen.preemptibility}: {effect}.",
    )


def _against_threshold(chosen: Effective) -> Iterator[ResolutionWarning]:
    """Said where a person chose one of the two; a manifest that labels both, or a type default, is quiet."""
    if chosen.preemptibility is chosen.priority.by_threshold:
        return
    if chosen.preemptibility_source is Source.LABEL:
        if chosen.priority_source is Source.EXPLICIT:
            message = f"The label sets {chosen.preemptibility}, which overrides the threshold of {THRESHOLD}."
            yield ResolutionWarning("label_beats_threshold", message)
    elif chosen.preemptibility is Preemptibility.NON_PREEMPTIBLE:
        message = "Never evicted, but runs only within the deserved quota, and higher priorities of its queue go first."
        yield ResolutionWarning("never_evicted_but_last", message)
    elif chosen.priority_source is not Source.TYPE:
        message = (
            f"Priority {chosen.priority.value} alone would be non-preemptible. Only KAI supports this "
            "setting, by a label."
        )
        yield ResolutionWarning("threshold_disagrees", message)
