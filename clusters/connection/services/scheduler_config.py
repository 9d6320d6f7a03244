"""How a cluster's scheduler is configured and which kinds the cluster serves, stored on its row.

Rung's model goes pool by pool. An instance that serves several pools counts shares over all of them: forecasts, the
cluster's page and its connection test say so.

Read again by every reconcile that looks at everything; forgotten when the cluster is given another scheduler.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from clusters.flavours.kai import CAUSES, shard_settings, value_of
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import HELD_BY_RUNG, NOT_HELD, Facts, Guarantee, SchedulerFlavour
from clusters.ports.gateway import (
    ClusterError,
    ClusterGateway,
    Kind,
    Manifest,
    NotAuthorized,
    NotServed,
    ObjectRef,
    TransientClusterError,
)
from clusters.ports.objects import BUDGET, KUEUE_COHORT, KUEUE_QUEUE, is_managed, kind_of_workload
from clusters.ports.workload_kinds import KINDS
from scheduling.forecast.cycle import Flavour
from scheduling.forecast.eviction_matrix import EvictionSettings
from scheduling.model.preemptibility import NO_EXEMPTIONS, EvictionExemptions, FairSharingStrategy

SERVED: Final = "shards"
QUOTA_GUARANTEE: Final = "quota_per_node_pool"
SETTINGS: Final = "shard_settings"
SET_OTHERWISE: Final = (
    "The {kind} of {pool} is configured with {settings}, which the model does not have. The scheduler may decide "
    "otherwise."
)
MOST: Final = 500
SHARED: Final = (
    "One {scheduler} serves the node pools {pools} and counts quotas and fair shares over all their nodes. "
    "Workloads within quota in one pool may wait indefinitely behind workloads over quota in another. Create a "
    "{kind} for every pool, and set the label {label} on its nodes and on the pool in Rung."
)
CAUTION: Final = (
    "One {scheduler} serves {pools} and counts shares over all their nodes. The estimate counts each pool "
    "separately, so a workload may wait although the estimate says it starts or reclaims."
)
UNSERVED: Final = (
    "No {kind} of {scheduler} covers the nodes of {pool}. Workloads there do not start until one exists for {what}."
)


class ObjectLister(Protocol):
    """Whatever lists objects."""

    def list(self, kind: Kind, *, managed_only: bool = True) -> tuple[list[Manifest], str]:
        """Every object of the kind."""


@dataclass(frozen=True, slots=True)
class _PoolsByInstance:
    """The pools of a cluster by the label value that decides which instance takes them; empty: all other nodes."""

    scheduler: str
    kind: str
    label: str
    pools: dict[str, Sequence[NodePool]]
    served: Collection[str] | None  # the values that instances take; None: not known

    @property
    def shared(self) -> Sequence[Sequence[NodePool]]:
        return [each for each in self.pools.values() if len(each) > 1]

    def unserved(self, value: str, pool: NodePool) -> str:
        if self.served is None or value in self.served:
            return ""
        what = f"{self.label}={value}" if value else f"nodes without the label {self.label}"
        return UNSERVED.format(kind=self.kind, scheduler=self.scheduler, pool=pool.name, what=what)


def shards_in(gateway: ObjectLister, flavour: SchedulerFlavour) -> Facts:
    """The label values that the instances take; nothing where no object says so: they are started by other means.

    Raises ClusterError.
    """
    if flavour.traits.shards is None:
        return {}
    try:
        found = gateway.list(flavour.traits.shards[0], managed_only=False)[0]
    except NotServed:
        return {}
    values = sorted({value_of(each) for each in found})[:MOST]
    settings = {value_of(each): setting for each in found[:MOST] if (setting := shard_settings(each))}
    return {name: value for name, value in ((SERVED, values), (SETTINGS, settings)) if value}


def shard_warnings(cluster: Cluster, facts: Facts | None = None) -> tuple[str, ...]:
    """What admins should change: several pools of one instance, pools of none. `facts`: read later than the row's."""
    by = _pools_by_instance(cluster, cluster.configured if facts is None else facts)
    if by is None:
        return ()
    names = {"scheduler": by.scheduler, "kind": by.kind, "label": by.label}
    shared = [SHARED.format(pools=_named(each), **names) for each in by.shared]
    without = [by.unserved(value, pool) for value, pools in by.pools.items() for pool in pools]
    return (*shared, *filter(None, without))


def unserved_because(cluster: Cluster, pool: str) -> str:
    """Why nothing starts in the pool: no instance takes its nodes. Empty: one does, or that is not known."""
    by = _pools_by_instance(cluster, cluster.configured)
    found = by and [by.unserved(value, each) for value, rows in by.pools.items() for each in rows if each.name == pool]
    return found[0] if found else ""


def shard_forecast_warnings(cluster: Cluster, pool: str) -> tuple[str, ...]:
    """What is to be known of a forecast for the pool, which takes it for an instance's only one."""
    by = _pools_by_instance(cluster, cluster.configured)
    beside = [each for each in by.shared if pool in {row.name for row in each}] if by else []
    return tuple(CAUTION.format(scheduler=by.scheduler, pools=_named(each)) for each in beside) if by else ()


def shard_settings_warnings(cluster: Cluster, pool: str) -> tuple[str, ...]:
    """What the instance of a pool is configured to do otherwise than the model."""
    by = _pools_by_instance(cluster, cluster.configured)
    values = [value for value, rows in by.pools.items() if pool in {row.name for row in rows}] if by else []
    read = (cluster.configured.get(SETTINGS) or {}).get(values[0], {}) if values else {}
    modelled = eviction_exemptions(cluster).causes
    apart = [f"no {name}" for name in read.get("off", ()) if CAUSES[name] not in modelled]
    if by is None or not (found := [*apart, *read.get("other", ())]):
        return ()
    return (SET_OTHERWISE.format(kind=by.kind, pool=pool, settings=", ".join(found)),)


def guarantees_with_shards(cluster: Cluster, guarantees: Sequence[Guarantee]) -> Sequence[Guarantee]:
    """Quotas do not hold pool by pool where pools share an instance, or have none."""
    warnings = shard_warnings(cluster)
    if not warnings:
        return guarantees
    warning = " ".join(warnings)
    return [
        replace(each, enforced="partly", explanation=warning, remedy="") if each.code == QUOTA_GUARANTEE else each
        for each in guarantees
    ]


def _pools_by_instance(cluster: Cluster, facts: Facts) -> _PoolsByInstance | None:
    """The sandbox has an instance for every pool, whatever its label."""
    flavour = flavour_for(cluster.flavour)
    if flavour.traits.shards is None or cluster.backend == "sandbox":
        return None
    kind, label = flavour.traits.shards
    found: dict[str, list[NodePool]] = defaultdict(list)
    for pool in sorted(cluster.node_pools.all(), key=lambda pool: pool.name):
        found[pool.label_value if pool.label_key == label else ""].append(pool)
    return _PoolsByInstance(flavour.title, kind.kind, label, dict(found), facts.get(SERVED))


def _named(pools: Sequence[NodePool]) -> str:
    *others, last = [pool.name for pool in pools]
    return f"{', '.join(others)} and {last}"


BUDGETS: Final = "budgets"


def budgets_in(gateway: ObjectLister, flavour: SchedulerFlavour) -> Facts:
    """By namespace with a disruption budget, how many evictions the strictest allows. Nothing where that is not known.

    Raises ClusterError, but not where budgets may not be read: no work needs them.
    """
    if not flavour.traits.spares_budgets:
        return {}
    try:
        found = gateway.list(BUDGET, managed_only=False)[0]
    except (NotServed, NotAuthorized):
        return {}
    allowed: dict[str, int] = {}
    for each in found:
        space, count = each["metadata"].get("namespace", ""), (each.get("status") or {}).get("disruptionsAllowed")
        number = count if isinstance(count, int) and not isinstance(count, bool) else 0
        if space in allowed or len(allowed) < MOST:
            allowed[space] = min(number, allowed.get(space, number))
    return {BUDGETS: allowed}


OTHER_QUEUES: Final = "other_queues"


def other_queues_in(gateway: ObjectLister, flavour: SchedulerFlavour) -> Facts:
    """What Rung did not make and its Kueue queues depend on.

    members: queues and cohorts of others in the tree of Rung's; lending: with lending limits; checks: on Rung's own
    queues, by name of the queue. Nothing where that is not known. Raises ClusterError, but not where it is not served.
    """
    if KUEUE_QUEUE not in flavour.kinds():
        return {}
    try:
        queues = gateway.list(KUEUE_QUEUE, managed_only=False)[0]
        cohorts = gateway.list(KUEUE_COHORT, managed_only=False)[0]
    except (NotServed, NotAuthorized):
        return {}
    above = {each["metadata"]["name"]: _above(each, "parentName") for each in cohorts}
    shared = {_root(_above(each, "cohortName"), above) for each in queues if is_managed(each)} - {""}
    others = [each for each in queues if not is_managed(each) and _root(_above(each, "cohortName"), above) in shared]
    others += [
        each
        for each in cohorts
        if not is_managed(each) and _root(each["metadata"]["name"], above) in shared - {each["metadata"]["name"]}
    ]
    checked = [each["metadata"]["name"] for each in queues if is_managed(each) and _has_checks(each.get("spec") or {})]
    lending = any("lendingLimit" in repr((each.get("spec") or {}).get("resourceGroups")) for each in others)
    return {OTHER_QUEUES: {"members": len(others), "lending": lending, "checks": sorted(checked)[:MOST]}}


def _above(manifest: Manifest, field: str) -> str:
    name = (manifest.get("spec") or {}).get(field)
    return name if isinstance(name, str) else ""


def _root(name: str, above: Mapping[str, str]) -> str:
    """The cohort above all; a tree that goes in circles ends somewhere."""
    for _ in range(MOST):
        if not above.get(name):
            break
        name = above[name]
    return name


def _has_checks(spec: Mapping[str, Any]) -> bool:
    strategy = spec.get("admissionChecksStrategy") or {}
    return bool(spec.get("admissionChecks") or (isinstance(strategy, Mapping) and strategy.get("admissionChecks")))


class ObjectReader(ObjectLister, Protocol):
    """Whatever can be asked for objects."""

    def get(self, ref: ObjectRef) -> Manifest | None:
        """The object, or None."""


def read_facts(gateway: ObjectReader, flavour: SchedulerFlavour) -> Facts:
    """What a scheduler's configuration and its instances say; nothing where it has none. Raises ClusterError."""
    by = flavour.traits.configuration
    facts = {} if by is None else by.facts_of(gateway.get(by.ref))
    return {
        **facts,
        **shards_in(gateway, flavour),
        **budgets_in(gateway, flavour),
        **other_queues_in(gateway, flavour),
    }


def read_facts_or_empty(gateway: ObjectReader, flavour: SchedulerFlavour) -> Facts:
    """`read_facts`; empty where the cluster refuses or does not answer."""
    try:
        return read_facts(gateway, flavour)
    except ClusterError:
        return {}


def configuration_warnings(flavour: SchedulerFlavour, facts: Facts) -> tuple[str, ...]:
    """What these facts mean to an admin."""
    by = flavour.traits.configuration
    return () if by is None else by.warnings_of(facts)


def guarantees_under(flavour: SchedulerFlavour, facts: Facts, *, deferring: bool) -> Sequence[Guarantee]:
    """What a scheduler keeps of Rung's guarantees where it is configured so, and Rung defers preemptors or not."""
    by = flavour.traits.configuration
    found = flavour.guarantees() if by is None else by.guarantees_of(facts)
    if deferring:
        return found
    return [
        replace(each, enforced="no", explanation=each.explanation.replace(HELD_BY_RUNG, NOT_HELD))
        if HELD_BY_RUNG in each.explanation
        else each
        for each in found
    ]


def refresh_scheduler_config(cluster: Cluster, gateway: ObjectReader) -> None:
    """Ask the cluster and keep the answer. Writes only what changed.

    What was known holds while the cluster does not answer; where it refuses, nothing is known any more.
    """
    try:
        facts = dict(read_facts(gateway, flavour_for(cluster.flavour)))
    except TransientClusterError:
        return
    except ClusterError:
        facts = {}
    if facts != cluster.configured:
        Cluster.objects.filter(pk=cluster.pk, flavour=cluster.flavour).update(configured=facts)
        cluster.configured = facts


def proposals_of(flavour: SchedulerFlavour) -> Mapping[str, Facts]:
    """What a replay may assume that its configuration says, by name."""
    return {} if flavour.traits.configuration is None else flavour.traits.configuration.proposals


def eviction_exemptions(cluster: Cluster) -> EvictionExemptions:
    """What its scheduler never evicts by its configuration, as far as Rung knows.

    Where it has several instances, what none of them evicts.
    """
    by = flavour_for(cluster.flavour).traits.configuration
    if by is not None:
        return by.exemptions(cluster.configured)
    settings = cluster.configured.get(SETTINGS) or {}
    served = cluster.configured.get(SERVED) or ()
    off = [frozenset(CAUSES[name] for name in settings.get(each, {}).get("off", ())) for each in served]
    return EvictionExemptions(causes=frozenset.intersection(*off)) if off else NO_EXEMPTIONS


def fair_sharing(cluster: Cluster) -> tuple[FairSharingStrategy, ...]:
    """By which rules its scheduler shares what queues borrow, as far as Rung knows; none: it does not."""
    by = flavour_for(cluster.flavour).traits.configuration
    return () if by is None else by.fair_sharing(cluster.configured)


def eviction_assumption(cluster: Cluster) -> str:
    """What Rung assumes of its scheduler's evictions because its configuration is unknown; empty: it is known."""
    by = flavour_for(cluster.flavour).traits.configuration
    return "" if by is None else by.assumption(cluster.configured)


def eviction_settings(cluster: Cluster) -> EvictionSettings:
    """Its scheduler, and as far as Rung knows what evictions depend on in its configuration."""
    assumed = bool(eviction_assumption(cluster))
    return EvictionSettings(Flavour(cluster.flavour), eviction_exemptions(cluster), fair_sharing(cluster), assumed)


def with_scheduler(cluster: Cluster, flavour: str, facts: Facts | None = None) -> Cluster:
    """A copy of the row as if it had this scheduler. facts: what its configuration says; None: what is known of it on
    this cluster, which is nothing unless the cluster runs it.
    """
    found = copy(cluster)
    known = cluster.configured if flavour == cluster.flavour else {}
    found.flavour, found.configured = flavour, known if facts is None else facts
    return found


def forecast_warnings(cluster: Cluster, outcome: str) -> tuple[str, ...]:
    """Warnings of its configuration for a workload with this forecast outcome."""
    by = flavour_for(cluster.flavour).traits.configuration
    return () if by is None else by.cautions_of(cluster.configured, outcome)


def domains_ignored_because(cluster: Cluster) -> str:
    """Why its scheduler would put a gang that asks for one domain anywhere; empty: it does not, as far as is known."""
    by = flavour_for(cluster.flavour).traits.configuration
    return "" if by is None else by.ignores_domains(cluster.configured)


def unmanaged_because(cluster: Cluster, kind: str) -> str:
    """Why its scheduler would leave a workload of this kind alone; empty: it does not, as far as is known."""
    by = flavour_for(cluster.flavour).traits.configuration
    return "" if by is None else by.unmanaged(cluster.configured, kind)


def kind_warnings(cluster: Cluster, kind: str) -> tuple[str, ...]:
    """Doubts about whether the scheduler manages this kind."""
    by = flavour_for(cluster.flavour).traits.configuration
    return () if by is None else by.kind_cautions_of(cluster.configured, kind)


def domain_warnings(cluster: Cluster) -> tuple[str, ...]:
    """Warnings for gangs that require one topology domain there."""
    traits = flavour_for(cluster.flavour).traits
    answered = () if traits.configuration is None else traits.configuration.domain_cautions_of(cluster.configured)
    return (*((traits.rigid,) if traits.rigid else ()), *answered)


def guarantees_on(cluster: Cluster) -> Sequence[Guarantee]:
    """What its scheduler keeps of Rung's guarantees, as it is configured there."""
    flavour, deferring = flavour_for(cluster.flavour), cluster.defer_preemptors
    return guarantees_with_shards(cluster, guarantees_under(flavour, cluster.configured, deferring=deferring))


def guarantee_on(cluster: Cluster, code: str) -> Guarantee:
    """What it says there of one guarantee. KeyError: it says nothing, which no flavour may."""
    return {guarantee.code: guarantee for guarantee in guarantees_on(cluster)}[code]


def refresh_served_kinds(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Ask the cluster and keep the answer, as `<apiVersion> <Kind>`. Writes only what changed. Raises ClusterError."""
    kinds = sorted(
        f"{version} {kind.kind}"
        for kind in KINDS
        for version in kind.api_versions
        if gateway.serves(kind_of_workload(kind, api_version=version))
    )
    if kinds != cluster.served_kinds:
        Cluster.objects.filter(pk=cluster.pk).update(served_kinds=kinds)
        cluster.served_kinds = kinds
