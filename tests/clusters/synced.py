"""A desired state of two priorities, one department and one project, and short words for what reconcile did with it."""

from clusters.backends.memory import MemoryGateway
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS
from clusters.sync.models import Drift, SyncRun
from tests.clusters.specs import priority, project, queue, state

PRIORITIES = (priority("high", 125), priority("low", 40))
FULL = state(project("vision"), priorities=PRIORITIES, departments=(queue("department.1", parent=None, deserved=8),))


def names(gateway: MemoryGateway) -> list[str]:
    return [
        each["metadata"]["name"] for kind in (PRIORITY_CLASS, NAMESPACE, KAI_QUEUE) for each in gateway.list(kind)[0]
    ]


def edit(gateway: MemoryGateway, ref: ObjectRef, **fields: object) -> None:
    """Somebody's own change of a live object."""
    live = gateway.get(ref)
    assert live is not None
    gateway.update({**live, **fields}, observed=live)


def outcomes(run: SyncRun) -> list[tuple[str, str, bool]]:
    return [(row.action, row.name, row.ok) for row in run.outcomes.order_by("id")]


def drifts(cluster: Cluster) -> set[tuple[str, str]]:
    return set(Drift.objects.filter(cluster=cluster).values_list("category", "name"))
