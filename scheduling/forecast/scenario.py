"""A question to a scheduler and its real decision, as JSON, for tests that compare the model with it."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Self

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.preemptibility import Cause, EvictionExemptions, FairSharingStrategy, QueuePreemptionPolicy
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode, Strategy, Taint, Toleration

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Scenario:
    """A cluster, the pod groups of one new workload, and what happened to it.

    kind: as `OutcomeKind`. victims: names of the pods that were evicted for it.
    """

    flavour: str
    snapshot: Snapshot
    candidates: tuple[PodGroup, ...]
    kind: str = ""
    victims: frozenset[str] = frozenset()

    def outcome(self) -> Outcome:
        """The model's answer. ValueError: no model of this flavour."""
        return preview(self.snapshot, *self.candidates, flavour=self.flavour)

    def agrees(self) -> bool:
        """Whether the model agrees with the real decision: whether it starts, and which pods are evicted."""
        found = self.outcome()
        waits = found.kind is OutcomeKind.PENDING
        pods = frozenset(pod for evict in found.victims for pod in evict.pods)
        return (waits, pods) == (self.kind == OutcomeKind.PENDING, self.victims)

    def as_json(self) -> dict[str, Any]:
        """`flavour`, `snapshot`, `candidates`, `outcome`; values that are defaults are left out."""
        return {
            "flavour": self.flavour,
            "snapshot": _plain(self.snapshot),
            "candidates": _plain(self.candidates),
            "outcome": {"kind": self.kind, "victims": sorted(self.victims)},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`, also from JSON text. Raises KeyError, TypeError or ValueError for invalid data."""
        outcome = data["outcome"]
        return cls(
            flavour=data["flavour"],
            snapshot=_SNAPSHOT(data["snapshot"]),
            candidates=_GROUPS(data["candidates"]),
            kind=outcome["kind"],
            victims=frozenset(outcome["victims"]),
        )

    def anonymous(self) -> Self:
        """The same with meaningless names in the same order, by which schedulers break ties."""
        data, found = self.as_json(), dict[str, str]()
        _renamed(data, lambda name: found.setdefault(name, name))
        known = {name: f"n{number:06}" for number, name in enumerate(sorted(found))}
        return type(self).from_json(_renamed(data, known.__getitem__))


def _parts(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]:
    """Names, a getter of all values, and the defaults."""
    own = [each for each in fields(kind) if each.init]
    names = tuple(each.name for each in own)
    defaults = (each.default if each.default_factory is MISSING else each.default_factory() for each in own)
    return names, attrgetter(*names), tuple(defaults)


_PARTS: Final = {
    kind: _parts(kind)
    for kind in (
        *(Snapshot, SnapshotNode, Queue, PodGroup, Pod, Resources, Limit, Taint, Toleration),
        EvictionExemptions,
    )
}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if value is None or isinstance(value, int) or type(value) is str:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(str(each) for each in value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, str):
        return str(value)
    names, values_of, defaults = _PARTS[type(value)]
    values = zip(names, values_of(value), defaults, strict=True)
    return {name: _plain(each) for name, each, default in values if each != default or name == "pool"}


def _made(kind: type, **parts: Read) -> Read:
    def read(data: Mapping[str, Any]) -> Any:
        return kind(**{name: parts[name](each) if name in parts else each for name, each in data.items()})

    return read


def _causes(data: Any) -> frozenset[Cause]:
    return frozenset(map(Cause, data))


def _many(read: Read) -> Read:
    return lambda data: tuple(read(each) for each in data)


def _values(read: Read) -> Read:
    return lambda data: {key: read(each) for key, each in data.items()}


_RESOURCES: Final = _made(Resources)
_POD: Final = _made(Pod, requests=_RESOURCES)
_TOLERATIONS: Final = _many(_made(Toleration))
_GROUPS: Final = _many(_made(PodGroup, pods=_many(_POD), tolerations=_TOLERATIONS, placement=Strategy))
_NODES: Final = _many(_made(SnapshotNode, capacity=_RESOURCES, taints=_many(_made(Taint))))
_LIMITS: Final = dict.fromkeys(("deserved", "limit"), _made(Limit))
_POLICIES: Final = dict.fromkeys(("preempts", "reclaims", "reclaims_over_quota"), QueuePreemptionPolicy)
_SNAPSHOT: Final = _made(
    Snapshot,
    nodes=_NODES,
    queues=_many(_made(Queue, **_LIMITS, **_POLICIES)),
    groups=_GROUPS,
    strategies=_values(Strategy),
    exempt=_made(EvictionExemptions, causes=_causes, inside_min_runtime=_causes),
    fair_sharing=_many(FairSharingStrategy),
    levels=_values(tuple),
)
_PLACES: Final = {"node", "nominated", "device", "topology", "pool"}
_NAMING: Final = frozenset({"sort_name", "name", "queue", "parent", "owner", "namespace", "kin", "victims"} | _PLACES)
_LABELLED: Final = frozenset({"labels", "node_selector", "strategies", "levels"})
_TAINTED: Final = frozenset({"taints", "tolerations"})


def _renamed(data: Any, rename: Callable[[str], str], at: str = "") -> Any:
    """The same with other names of nodes, queues, pods, labels and taints. at: the field that holds the value."""
    if isinstance(data, list):
        return [_renamed(each, rename, at) for each in data]
    if isinstance(data, str):
        return rename(data) if data and at in _NAMING | _LABELLED else data
    if not isinstance(data, dict):
        return data
    if at in _LABELLED:
        inside = "" if at == "strategies" else at
        return {rename(key): _renamed(each, rename, inside) for key, each in data.items()}
    if at in _TAINTED:
        return {key: rename(each) if each and key in {"key", "value"} else each for key, each in data.items()}
    return {key: _renamed(each, rename, key) for key, each in data.items()}
