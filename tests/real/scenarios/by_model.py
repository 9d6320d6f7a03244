"""What the model says to a scenario."""

from dataclasses import replace

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode
from tests.real.scenarios.plain import Kind, PodPlan, Scenario, Verdict

SELECTED = {"choice": "yes"}
LATER = 10**6


def predict(scenario: Scenario, before: Verdict | None) -> Verdict:
    """The last comer's verdict; `before` is what really became of the one that came earlier, if there is one."""
    snapshot = start(scenario)
    if scenario.earlier and before:
        snapshot = _after(snapshot, scenario.earlier, before)
    return _verdict(preview(snapshot, _group(scenario.candidate), flavour="kube"))


def predict_earlier(scenario: Scenario) -> Verdict:
    """The verdict of the pod that comes first."""
    assert scenario.earlier is not None
    return _verdict(preview(start(scenario), _group(scenario.earlier), flavour="kube"))


def start(scenario: Scenario) -> Snapshot:
    """The scenario before anybody comes."""
    nodes = tuple(
        SnapshotNode(
            name=node.name,
            pool="default",
            capacity=node.capacity,
            labels={} if node.closed == "elsewhere" else SELECTED,
            ready=node.closed not in {"cordoned", "tainted"},
            order=order,
            max_pods=node.max_pods,
        )
        for order, node in enumerate(scenario.nodes)
    )
    return Snapshot(nodes, (), tuple(_group(pod) for pod in scenario.pods))


def _group(plan: PodPlan) -> PodGroup:
    running = plan.node is not None
    return PodGroup(
        name=plan.name,
        queue=plan.namespace,
        namespace=plan.namespace,
        priority=plan.priority,
        preemptible=True,
        pods=(Pod(plan.name, plan.requests, plan.node, plan.ending),),
        started=plan.start if running else None,
        created=plan.start if running else LATER,
        never_preempts=plan.never,
        node_selector=SELECTED,
    )


def _after(snapshot: Snapshot, comer: PodPlan, verdict: Verdict) -> Snapshot:
    """The same cluster once the verdict about one pod has been carried out."""
    groups = [
        replace(group, pods=(replace(group.pods[0], terminating=True),)) if group.name in verdict.victims else group
        for group in snapshot.groups
    ]
    placed = verdict.kind is Kind.PLACED
    pod = Pod(comer.name, comer.requests, verdict.node if placed else None, nominated=None if placed else verdict.node)
    arrived = replace(_group(comer), pods=(pod,), created=LATER - 1, started=LATER if placed else None)
    return replace(snapshot, groups=(*groups, arrived))


def _verdict(outcome: Outcome) -> Verdict:
    victims = frozenset(pod for evict in outcome.victims for pod in evict.pods)
    node = next(iter(outcome.placements.values()), "")
    if victims:
        return Verdict(Kind.PREEMPTS, victims, node)
    return Verdict(Kind.WAITS if outcome.pend else Kind.PLACED, victims, node)
