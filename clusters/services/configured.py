"""What the configuration of a cluster's scheduler says, kept on its row: a forecast is answered from there.

Read again by every reconcile that looks at everything; forgotten when the cluster is given another scheduler.
"""

from collections.abc import Sequence
from typing import Protocol

from clusters.errors import ClusterError, TransientClusterError
from clusters.flavours import flavour_for
from clusters.models import Cluster
from clusters.ports import Facts, Manifest, ObjectRef, Promise, SchedulerFlavour
from clusters.services.shards import Lister, promises_with_shards, shards_in


class Reader(Lister, Protocol):
    """Whatever can be asked for objects."""

    def get(self, ref: ObjectRef) -> Manifest | None:
        """The object, or None."""


def facts_in(gateway: Reader, flavour: SchedulerFlavour) -> Facts:
    """What a scheduler's configuration and its instances say; nothing where it has none. Raises ClusterError."""
    by = flavour.traits.configuration
    facts = {} if by is None else by.facts_of(gateway.get(by.ref))
    return {**facts, **shards_in(gateway, flavour)}


def facts_if_read(gateway: Reader, flavour: SchedulerFlavour) -> Facts:
    """The same; nothing where it cannot be read."""
    try:
        return facts_in(gateway, flavour)
    except ClusterError:
        return {}


def warnings_of(flavour: SchedulerFlavour, facts: Facts) -> tuple[str, ...]:
    """What these facts mean to an admin."""
    by = flavour.traits.configuration
    return () if by is None else by.warnings_of(facts)


def promises_under(flavour: SchedulerFlavour, facts: Facts) -> Sequence[Promise]:
    """What a scheduler keeps of Rung's promises where it is configured so."""
    by = flavour.traits.configuration
    return flavour.semantics() if by is None else by.promises_of(facts)


def note_configured(cluster: Cluster, gateway: Reader) -> None:
    """Ask the cluster and keep the answer. Writes only what changed.

    What was known holds while the cluster does not answer; where it refuses, nothing is known any more.
    """
    try:
        facts = dict(facts_in(gateway, flavour_for(cluster.flavour)))
    except TransientClusterError:
        return
    except ClusterError:
        facts = {}
    if facts != cluster.configured:
        Cluster.objects.filter(pk=cluster.pk, flavour=cluster.flavour).update(configured=facts)
        cluster.configured = facts


def left_out(cluster: Cluster) -> frozenset[str]:
    """Causes of evictions that the configuration of its scheduler does not have, as far as Rung knows."""
    by = flavour_for(cluster.flavour).traits.configuration
    return frozenset() if by is None else by.leaves_out(cluster.configured)


def cautions(cluster: Cluster, foretold: str) -> tuple[str, ...]:
    """What its configuration means for a workload of which this is foretold (`scheduling.decisions.Kind`)."""
    by = flavour_for(cluster.flavour).traits.configuration
    return () if by is None else by.cautions_of(cluster.configured, foretold)


def domains_ignored(cluster: Cluster) -> str:
    """Why its scheduler would put a gang that asks for one domain anywhere; empty: it does not, as far as is known."""
    by = flavour_for(cluster.flavour).traits.configuration
    return "" if by is None else by.ignores_domains(cluster.configured)


def left_alone(cluster: Cluster, kind: str) -> str:
    """Why its scheduler would leave a workload of this kind alone; empty: it does not, as far as is known."""
    by = flavour_for(cluster.flavour).traits.configuration
    return "" if by is None else by.unmanaged(cluster.configured, kind)


def kind_cautions(cluster: Cluster, kind: str) -> tuple[str, ...]:
    """What is not known of that."""
    by = flavour_for(cluster.flavour).traits.configuration
    return () if by is None else by.kind_cautions_of(cluster.configured, kind)


def domain_cautions(cluster: Cluster) -> tuple[str, ...]:
    """What people are told whose gang asks for one domain there."""
    traits = flavour_for(cluster.flavour).traits
    told = () if traits.configuration is None else traits.configuration.domain_cautions_of(cluster.configured)
    return (*((traits.rigid,) if traits.rigid else ()), *told)


def promises_on(cluster: Cluster) -> Sequence[Promise]:
    """What its scheduler keeps of Rung's promises, as it is configured there."""
    return promises_with_shards(cluster, promises_under(flavour_for(cluster.flavour), cluster.configured))


def promise_on(cluster: Cluster, code: str) -> Promise:
    """What it says there of one promise. KeyError: it says nothing, which no flavour may."""
    return {promise.code: promise for promise in promises_on(cluster)}[code]
