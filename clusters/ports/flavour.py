"""The protocol of a scheduler flavour, the specs it renders, its traits and its guarantees. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from clusters.ports.gateway import Kind, Manifest, ObjectRef
from scheduling.model.preemptibility import NO_EXEMPTIONS, EvictionExemptions, FairSharingStrategy
from scheduling.model.resources import Limit

NOTHING = Limit(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PriorityClassSpec:
    """A dictionary entry as clusters hold it: what a PriorityClass is made from."""

    name: str
    value: int
    preemption_policy: str
    description: str
    owner: str
    generation: int


class TopologyDomain(NamedTuple):
    """Nodes of a pool that have the same value of every level: the values, widest level first, and the nodes' names."""

    values: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A node pool: its name and the node label that makes it."""

    name: str
    label_key: str
    label_value: str
    is_default: bool = False
    topology_levels: tuple[str, ...] = ()  # node labels of its domains of close nodes, widest first
    topology_revision: int = 0  # of settings that a scheduler gets and never changes itself
    domains: tuple[TopologyDomain, ...] = ()  # as nodes were observed, for a scheduler that gets each of them


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue of one node pool: a department's (no parent) or a project's. None in a `Limit` is unlimited."""

    name: str
    display_name: str
    parent: str | None
    pool: PoolSpec
    deserved: Limit
    limit: Limit
    over_quota_weight: float
    rank: str
    owner: str
    generation: int
    cpu_weight: float | None = None  # over-quota; None: that of GPUs
    memory_weight: float | None = None
    promised: Limit = NOTHING  # a department's: what its projects deserve together, where a flavour asks for it
    min_runtime_minutes: int | None = None  # so long its preemptible work is left alone; None: as the queue above says


@dataclass(frozen=True, slots=True)
class ProjectSpec:
    """A project's namespace, its leaf queues (one per pool) and its optional GPU caps (milli) per priority name."""

    name: str
    namespace: str
    queues: tuple[QueueSpec, ...]
    priority_caps: Mapping[str, int]
    owner: str
    generation: int
    pod_security: str = "restricted"


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What one cluster should hold, put together from what the apps above contribute."""

    priorities: tuple[PriorityClassSpec, ...] = ()
    departments: tuple[QueueSpec, ...] = ()
    projects: tuple[ProjectSpec, ...] = ()
    pools: tuple[PoolSpec, ...] = ()

    def __add__(self, other: "DesiredState") -> "DesiredState":
        return DesiredState(
            self.priorities + other.priorities,
            self.departments + other.departments,
            self.projects + other.projects,
            self.pools + other.pools,
        )


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A workload ready to be rendered. `manifest` is the rebuilt body."""

    id: str
    type_name: str
    name: str
    namespace: str
    manifest: Manifest
    priority_class: str
    priority_value: int
    preemptibility: str
    queue: str
    pool: PoolSpec | None
    min_member: int
    generation: int
    suspended: bool = False
    pod_security: str = "restricted"
    min_runtime_minutes: int = 0  # protected from eviction for so long from its start, where pods carry it; 0: not set


Facts = Mapping[str, Any]


GANG_INCOMPLETE: Final = "GangIncomplete"
"""Why a pod waits that could start, were it not for the rest of its gang: the others say what is missing."""


WAITS_FOR_VICTIMS: Final = "Evicting"
"""Why a pod waits that has its room as soon as others have ended; the rest of its gang may lack more."""


@dataclass(frozen=True, slots=True)
class PodStatusReason:
    """A pod's status in Rung's words: reason and message while it waits, and what disrupted it."""

    reason: str = ""
    message: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)
    preemptor: str = ""  # "<namespace>/<name>" of a workload or pod, or "uid:<pod uid>"
    cause: str = ""  # of an eviction: preempt, reclaim, consolidate or unknown; empty: it was not evicted
    whole: bool = False  # decided for a gang, which evicts other gangs whole: their pods go by one decision


Enforced = Literal["yes", "partly", "no"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One guarantee of Rung's words, whether this scheduler keeps it, and what to do where it does not."""

    code: str
    title: str
    enforced: Enforced
    explanation: str
    remedy: str = ""


GangMinimum = Literal["none", "all", "own", "any"]
"""Of a gang's pods that start together: not set; always all of them; from a field of its kind; as requested."""
KeptWeights = Literal["resources", "queue", "whole", "none"]
"""Over-quota weights of a queue: one for each resource; one; one whole number from 1; none."""


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """The one object that a scheduler is configured by, why Rung reads it, and what it means for Rung's words.

    Rung keeps `facts_of` it, as JSON, with the cluster; all others answer from these. No facts: there is no such
    object, or nothing readable in it, or it may not be read, so that the answers are assumptions and say so.
    """

    ref: ObjectRef
    why: str
    facts_of: Callable[[Manifest | None], Facts]
    warnings_of: Callable[[Facts], tuple[str, ...]]  # what it misses, for admins
    cautions_of: Callable[
        [Facts, str], tuple[str, ...]
    ]  # for forecasts with this outcome (`scheduling.model.decisions.OutcomeKind`)
    guarantees_of: Callable[[Facts], tuple[Guarantee, ...]]  # as this configuration keeps them
    exemptions: Callable[[Facts], EvictionExemptions] = lambda _facts: NO_EXEMPTIONS  # what it never evicts
    fair_sharing: Callable[[Facts], tuple[FairSharingStrategy, ...]] = lambda _facts: ()  # as Kueue is configured
    assumption: Callable[[Facts], str] = lambda _facts: ""  # about both, where nothing could be read; "": it was read
    ignores_domains: Callable[[Facts], str] = lambda _facts: ""  # why a gang that asks for one is put anywhere, or ""
    domain_cautions_of: Callable[[Facts], tuple[str, ...]] = lambda _facts: ()  # what is not known of that
    unmanaged: Callable[[Facts, str], str] = lambda _facts, _kind: ""  # why it leaves a kind alone; "": it does not
    kind_cautions_of: Callable[[Facts, str], tuple[str, ...]] = lambda _facts, _kind: ()  # what is not known of that
    proposals: Mapping[str, Facts] = field(default_factory=dict)  # other configurations that may be tried in a replay


@dataclass(frozen=True, slots=True)
class VisibilityApi:
    """What a scheduler says only when it is asked: who waits in a queue, and whether it lets workloads be made."""

    queue: Kind  # as it is asked about; Rung owns objects of the same name
    part: str  # the subresource that answers
    why: str
    tell: Callable[[Manifest], Iterable[Manifest]]  # an answer as events about the jobs that wait
    example: Callable[[str, str], Manifest]  # a job in this namespace and queue, to be made on trial
    closed_by: Callable[[str], str]  # the webhook that does not answer, in a refusal; empty: it is about something else


@dataclass(frozen=True, slots=True)
class Traits:
    """How a scheduler differs from plain kube-scheduler. Code checks these traits, never the scheduler's name."""

    installed: Kind | None = None
    """A kind that is served where the scheduler is installed; None: it is always there."""
    suggested: bool = True
    """Finding it installed is enough to suggest it; otherwise it is an admin's choice."""
    simulated: bool = False
    """The sandbox has its objects and words; workloads of others are placed there as kube-scheduler places them."""
    queues_by_pool: bool = False
    """Projects and departments have a queue in every node pool, and a workload's pods are one group."""
    weights: KeptWeights = "none"
    """How many over-quota weights a queue has: one per resource, one, one whole number from 1, or none."""
    root_above: bool = False
    """Departments share what they do not use: there is a queue above them all."""
    sums_projects: bool = False
    """A department's objects depend on the sum of what its projects deserve."""
    queues_jobs: bool = False
    """Whole jobs wait, are let go and are evicted: pods exist only of those that were let go."""
    counts_classes: bool = False
    """A workload that is there counts with the number that its PriorityClass has now, not with that of its pods."""
    quotas_by_class: bool = False
    """Quotas of projects name PriorityClasses; otherwise no object of a project depends on the dictionary."""
    singly: tuple[str, ...] = ()
    """Types whose pods it decides about one by one, or by their own minimum, where otherwise all are one group."""
    whole_gangs: bool = False
    """A gang of the plain scheduler is evicted whole and may ask for one topology domain."""
    spares_budgets: bool = False
    """Pods that a disruption budget protects are evicted last."""
    shares_gpus: bool = False
    """A pod may ask for a part of one GPU (the annotation `gpu-fraction`); on every other scheduler it gets none."""
    placements: tuple[str, ...] = ()
    """How a workload may want its own pods: `binpack`, on few nodes; `spread`, on many."""
    places_by_pool: bool = False
    """Every node pool is filled by a strategy of its own; otherwise one holds for the whole cluster."""
    minimum: GangMinimum = "none"
    """How the minimum of a gang may be set."""
    settable_minimum: tuple[str, ...] = ()
    """Kinds whose minimum is set without a field of their own."""
    beside: tuple[Kind, ...] = ()
    """Objects that stand beside a workload's own, under its name, in the order of making them."""
    event_sources: Mapping[Kind, Callable[[Manifest], Iterable[Manifest]]] = field(default_factory=dict)
    """Objects of the scheduler's own that are watched, and how each becomes events about its workload."""
    labelled_events: tuple[Kind, ...] = ()
    """Event sources that carry the labels of their workload's object. Only labelled ones are listed."""
    redirect_event: Callable[[Manifest], Manifest | None] | None = None
    """How an event about an object of its own becomes one about a pod, by name, or a workload's object, by uid."""
    configuration: SchedulerConfiguration | None = None
    """What it is configured by, where that can be read."""
    shards: tuple[Kind, str] | None = None
    """Objects that make an instance each, for the nodes and queues with one value of this label, or without it."""
    topologies: Kind | None = None
    """Made of the topology levels of each node pool; a gang may then ask for one domain of a level."""
    names_domains: bool = False
    """It gets every domain with its nodes, as they were observed."""
    fixed_topologies: bool = False
    """What runs is counted under the levels of its start, and they never change: other levels get a new name."""
    protects_minimum_runtime: Literal["queues", "pods", "held"] = "held"
    """What protects runs inside their minimum runtime: queues, pods (by a time set at creation) or Rung (`held`)."""
    inquiries: VisibilityApi | None = None
    """What it is asked again and again while something waits."""
    rigid: str = ""
    """What a gang gives up that asks for one topology domain, as a sentence for its people; empty: nothing."""

    @property
    def knows_domains(self) -> bool:
        """A gang may ask for nodes with one value of a label."""
        return self.whole_gangs or self.topologies is not None

    @property
    def goes_by_levels(self) -> bool:
        """It looks for domains itself, level by level, when it looks for nodes."""
        return self.topologies is not None and not self.names_domains

    @property
    def names_objects(self) -> bool:
        """It says who gained by the uid of a workload's object, not of a pod."""
        return self.whole_gangs or self.queues_jobs or self.redirect_event is not None


class SchedulerFlavour(Protocol):
    """A scheduler's dialect: specs in, plain manifests out, observations in, reasons out. Pure."""

    name: str
    title: str
    preemptibilities: tuple[str, ...]  # the values this scheduler can express
    traits: Traits

    def kinds(self) -> Sequence[Kind]:
        """Kinds that reconcile lists and owns."""

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """Every object the cluster should hold for the dictionary, departments, projects and quotas."""

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a project's or department's queue in a pool."""

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's objects with priority, queue, preemptibility and scheduler set at every pod template."""

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """A pod's conditions and events in Rung's words."""

    def guarantees(self) -> Sequence[Guarantee]:
        """What this scheduler keeps of Rung's guarantees."""

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What this scheduler will not keep for one workload, as sentences for its people; empty when it keeps all."""


HELD_BY_RUNG: Final = (
    "so Rung defers workloads that would evict a run inside its minimum runtime, if the cluster's option Defer "
    "preemptors is on. Rung decides by the estimate, until the minimum runtime is over, and only for workloads not yet "
    "sent to the cluster. Workloads that wait in the cluster, and pods not created by Rung, may still evict it."
)
"""The end of a sentence about a scheduler that evicts by priority only, without a minimum runtime."""
NOT_HELD: Final = "and the cluster's option Defer preemptors is off."
"""The end of that sentence on a cluster with the option off."""


MIN_RUNTIME: Final = "min_runtime"
"""Code of the guarantee of minimum runtimes; every flavour gives it or says that it does not."""
RECLAIM: Final = "over_quota_and_reclaim"
"""The same of over-quota use, which others reclaim."""
