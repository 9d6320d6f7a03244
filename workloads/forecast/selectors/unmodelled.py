"""What schedulers and nodes ask for that the model does not: named where it would make a difference to a forecast."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.connection.services.scheduler_config import BUDGETS, OTHER_QUEUES
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import NodePool
from clusters.ports.pods import (
    CLAIMS,
    EPHEMERAL_STORAGE,
    GPU_DEVICES,
    GPU_MEMORY,
    GPU_RESOURCE,
    needs_of_pods,
)
from clusters.watch.models import ObservedPod
from scheduling.model.decisions import Outcome
from scheduling.model.snapshot import PodGroup, Snapshot, SnapshotNode
from scheduling.rules.kube.preemption import LEAST_SAMPLE, equally_good, sample_size
from tenants.organisation.models import Project
from workloads.forecast.rules.messages import Doubt, DoubtCode, doubt, memory_text
from workloads.intake import WorkloadSpec
from workloads.intake.rules.spec import hard_spreads, named_requests, volume_claims
from workloads.state.models import Phase, Workload

CLAIM: Final = (
    "It mounts the volume claim{s} {names}, which Rung does not read. If one does not exist or has no volume, its pods "
    "wait."
)
SPREAD: Final = (
    "Its pods must be spread over {key} (maxSkew {skew}, DoNotSchedule), which the model does not hold: here {most} "
    "pods are in one domain and {least} in another. Pods that break it wait, or evict others elsewhere."
)
SPREAD_UNPLACED: Final = (
    "Its pods must be spread over {key} (maxSkew {skew}, DoNotSchedule). The estimate names no nodes, so pods that "
    "would break it may wait."
)
STORAGE: Final = (
    "{node} has {free} of ephemeral storage left, and a pod needs {needed}. The model counts only what a node has in "
    "all, so the pod may wait."
)
MIXED: Final = (
    "{node} offers GPUs under several resource names and has {free} {name} left. The model counts all of them "
    "together, so the pod may wait."
)
NOT_COUNTED: Final = (
    "On the nodes where its pods go, {pods} of others use GPUs in a way that is not counted exactly ({ways}). Fewer or "
    "more GPUs may be free there."
)
WAYS: Final = {
    CLAIMS: "claims of dynamic resource allocation",
    GPU_MEMORY: "parts of GPUs by memory",
    GPU_DEVICES: "parts of several GPUs",
}
BUDGET: Final = (
    "Disruption budgets in the namespaces of {victims} do not allow so many evictions. The kube-scheduler then prefers "
    "other victims, which the model does not know."
)
BUDGETS_UNKNOWN: Final = (
    "Rung's account may not read disruption budgets here. The kube-scheduler prefers victims without one, so it may "
    "evict others."
)
SAMPLED: Final = (
    "With {nodes} nodes to choose from, the kube-scheduler looks at about {sample} of them, from a random one on. It "
    "evicts on one of {equal} equally good nodes, such as {names}."
)
OTHERS: Final = (
    "{members} that Rung did not make {share} quota with its queues{lending}. The estimate counts Rung's queues only: "
    "others may have borrowed what it takes for free, or lend it more."
)
LENDING: Final = ", some with lending limits"
CHECKS: Final = (
    "Its queue has admission checks, which the model does not have: once its quota is reserved, it waits until all of "
    "them are ready."
)
MOST_LOOKED_AT: Final = 200
NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class ForecastSubject:
    """What is forecast: a workload of a project in a pool, as pod groups of a snapshot, with its outcome."""

    spec: WorkloadSpec
    project: Project
    pool: NodePool
    snapshot: Snapshot
    candidates: Sequence[PodGroup]
    outcome: Outcome

    @property
    def nodes(self) -> Mapping[str, SnapshotNode]:
        """By name."""
        return {node.name: node for node in self.snapshot.nodes}

    @property
    def places(self) -> set[str]:
        """Names of the nodes where its pods go; empty where the scheduler names none."""
        return set(self.outcome.placements.values())


def unmodelled(about: ForecastSubject) -> Iterator[Doubt]:
    """Doubts about pods that are placed, and about their victims."""
    if about.outcome.starting or about.outcome.coming:
        yield from _claims(about)
        yield from _spreads(about)
        yield from _devices(about)
        yield from _not_counted(about)
    yield from _other_queues(about)
    if about.outcome.victims and flavour_for(about.pool.cluster.flavour).traits.spares_budgets:
        yield from _budgets(about)
        yield from _sampled(about)


def _claims(about: ForecastSubject) -> Iterator[Doubt]:
    """A claim that another workload of the project runs with is there."""
    names = volume_claims(about.spec.manifest)
    if not names:
        return
    running = Workload.objects.filter(project=about.project, phase=Phase.RUNNING, deleted_at__isnull=True)
    manifests = running.order_by("-created_at").values_list("spec__manifest", flat=True)[:MOST_LOOKED_AT]
    known = {name for each in manifests for name in volume_claims(each or {})}
    if left := sorted(names - known):
        sentence = CLAIM.format(s="s" if len(left) > 1 else "", names=", ".join(left))
        values = {"namespace": about.project.namespace, "names": " ".join(left)}
        yield doubt(DoubtCode.VOLUME_CLAIM, sentence, **values)


def _spreads(about: ForecastSubject) -> Iterator[Doubt]:
    if sum(role.replicas for role in about.spec.roles) < 2:
        return
    nodes = {node.name: node.labels for node in about.nodes.values() if node.pool == about.candidates[0].pool}
    for key, skew in hard_spreads(about.spec):
        values: dict[str, Any] = {"key": key, "skew": skew}
        if not about.outcome.placements:
            yield doubt(DoubtCode.TOPOLOGY_SPREAD, SPREAD_UNPLACED.format(**values), key=key)
            continue
        held = Counter(dict.fromkeys((labels[key] for labels in nodes.values() if key in labels), 0))
        held.update(nodes.get(node, {}).get(key, "") for node in about.outcome.placements.values())
        most, least = max(held.values()), min(held.values())
        if most - least > skew:
            yield doubt(DoubtCode.TOPOLOGY_SPREAD, SPREAD.format(most=most, least=least, **values), key=key)


def _devices(about: ForecastSubject) -> Iterator[Doubt]:
    """Of what is not counted down, less is left on a node than a pod there needs."""
    nodes = about.nodes
    needs = needs_of_pods(named_requests(about.spec).values())
    rows = {name: nodes[name].more for name in sorted(about.places) if set(nodes[name].more) - {GPU_RESOURCE}}
    used = _used(about, rows) if rows and needs else {}
    for node, offered in rows.items():
        for name, amount in needs.items():
            free = max(offered.get(name, 0) - used.get(node, Counter())[name], 0)
            if free < amount:
                yield _short(node, name, free, amount)
                return


def _short(node: str, name: str, free: int, needed: int) -> Doubt:
    if name == EPHEMERAL_STORAGE:
        sentence = STORAGE.format(node=node, free=memory_text(free), needed=memory_text(needed, up=True))
        return doubt(DoubtCode.EPHEMERAL_STORAGE, sentence, node=node)
    return doubt(DoubtCode.GPU_RESOURCES_MIXED, MIXED.format(node=node, free=free, name=name), node=node)


def _used(about: ForecastSubject, nodes: Collection[str]) -> dict[str, Counter[str]]:
    """By node and resource name, without the victims. Parts of a GPU count as what they are, rounded up."""
    gone = {pod for evict in about.outcome.victims for pod in evict.pods}
    rows = ObservedPod.objects.holding().filter(cluster=about.pool.cluster, node_name__in=nodes).exclude(uid__in=gone)
    found: dict[str, Counter[str]] = {}
    for node, gpus, more in rows.values_list("node_name", "gpu_milli", "more_requests"):
        needs = needs_of_pods([(gpus, more)])
        needs[GPU_RESOURCE] = -(-gpus // 1000) if GPU_RESOURCE in needs else 0
        found.setdefault(node, Counter()).update(needs)
    return found


def _not_counted(about: ForecastSubject) -> Iterator[Doubt]:
    rows = ObservedPod.objects.holding().filter(cluster=about.pool.cluster, node_name__in=about.places)
    found = list(rows.exclude(more_requests={}).values_list("more_requests", flat=True))
    odd = [each for each in found if WAYS.keys() & each.keys()]
    if odd:
        ways = ", ".join(words for key, words in WAYS.items() if any(key in each for each in odd))
        pods = "1 pod" if len(odd) == 1 else f"{len(odd)} pods"
        sentence = NOT_COUNTED.format(pods=pods, ways=ways)
        yield doubt(DoubtCode.PODS_NOT_COUNTED, sentence, pool=about.pool.name)


def _budgets(about: ForecastSubject) -> Iterator[Doubt]:
    cluster = about.pool.cluster
    allowed = cluster.configured.get(BUDGETS)
    if allowed is None:
        if not cluster.is_simulated:
            yield doubt(DoubtCode.DISRUPTION_BUDGETS_UNKNOWN, BUDGETS_UNKNOWN)
        return
    taken = Counter[str]()
    for evict in about.outcome.victims:
        taken[evict.victim.namespace] += len(evict.pods)
    held = [name for name, pods in taken.items() if name in allowed and allowed[name] < pods]
    if held:
        number = sum(taken[name] for name in held)
        victims = "1 victim" if number == 1 else f"{number} victims"
        yield doubt(DoubtCode.DISRUPTION_BUDGETS, BUDGET.format(victims=victims))


def _other_queues(about: ForecastSubject) -> Iterator[Doubt]:
    found = about.pool.cluster.configured.get(OTHER_QUEUES) or {}
    if number := found.get("members", 0):
        members = "1 queue or cohort" if number == 1 else f"{number} queues and cohorts"
        values = {"share": "shares" if number == 1 else "share", "lending": LENDING if found["lending"] else ""}
        yield doubt(DoubtCode.QUEUES_OF_OTHERS, OTHERS.format(members=members, **values))
    if about.project.owner in found.get("checks", ()):
        yield doubt(DoubtCode.ADMISSION_CHECKS, CHECKS, queue=about.project.owner)


def _sampled(about: ForecastSubject) -> Iterator[Doubt]:
    """Gangs are decided over all nodes."""
    first = about.candidates[0]
    if first.gang or len(about.snapshot.nodes) <= LEAST_SAMPLE:
        return
    nodes, equal = equally_good(about.snapshot, first)
    if nodes > LEAST_SAMPLE and len(equal) > 1:
        values = {"nodes": nodes, "sample": sample_size(nodes), "equal": len(equal)}
        yield doubt(DoubtCode.NODES_SAMPLED, SAMPLED.format(names=", ".join(equal[:NAMED]), **values))
