"""Every kind a tenant may submit gets its pods, as its flavour rendered them, and knows when it has ended."""

from typing import Any

import pytest

from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.objects import EVENT
from clusters.ports.pod_templates import WorkloadKind, parts_in
from clusters.ports.pods import controller_of, labels
from clusters.ports.workload_kinds import KINDS, kind_named
from clusters.sandbox.services.kubelet import ENDLESS, run_seconds
from clusters.watch.rules import job_status
from tests.clusters.samples import sample
from tests.clusters.sandboxes import Sandbox
from tests.clusters.specs import POOL, WORKLOAD, job, project, queue, state
from tests.support import kubernetes_schema

pytestmark = pytest.mark.django_db

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
every_flavour = pytest.mark.parametrize("flavour", sorted(FLAVOURS))
suspendable = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.suspend], ids=lambda kind: kind.name)

SPACE = "runai-team"
WANTED = state(
    project("team", deserved=64), departments=(queue("department.1", parent=None, deserved=64),), pools=(POOL,)
)
SELECTS: dict[str, Any] = {"selector": {"matchLabels": {}}}


def prepared(flavour: str) -> Sandbox:
    """What a rendered job expects to find: its namespace, class, queue and pool."""
    sandbox = Sandbox(flavour)
    sandbox.node(gpus=64, pool="a100")
    sandbox.priority_classes()
    sandbox.namespace(SPACE)
    for manifest in flavour_for(flavour).objects_for(WANTED):
        if manifest["kind"] in {"Queue", "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"}:
            sandbox.create(manifest)
    return sandbox


def rendered(flavour: str, kind: WorkloadKind, *, seconds: str = "60", **fields: Any) -> Manifest:
    body = sample(kind, annotations={"rung.dev/run-seconds": seconds})
    (manifest,) = flavour_for(flavour).render(job(body, namespace=SPACE, **fields))
    return manifest


def counted(kind: WorkloadKind, manifest: Manifest) -> int:
    """How many pods the table of kinds counts."""
    return sum(part.replicas for part in parts_in(manifest, kind))


@every_flavour
@every_kind
def test_its_pods_run_with_the_effective_values(flavour: str, kind: WorkloadKind) -> None:
    sandbox = prepared(flavour)
    manifest = rendered(flavour, kind)
    created = sandbox.create(manifest)
    sandbox.ticks(3)
    pods = sandbox.pods()
    assert len(pods) == counted(kind, manifest) >= 1
    for pod in pods:
        assert pod["status"]["phase"] == "Running"
        assert pod["spec"]["priority"] == 40
        assert labels(pod)["rung.dev/owner"] == f"workload.{WORKLOAD}"
        assert labels(pod)["kai.scheduler/preemptibility"] == "preemptible"
        owner = controller_of(pod)
        assert kind.name == "Pod" or (owner and owner["uid"] == created["metadata"]["uid"])


@every_kind
def test_what_the_sandbox_writes_is_valid_kubernetes(kind: WorkloadKind) -> None:
    sandbox = prepared("kube")
    manifest = rendered("kube", kind)
    if kind.group == "apps":
        manifest["spec"] |= SELECTS
    created = sandbox.create(manifest)
    for after in (1, 1, 1, 61, 1):
        sandbox.tick(after=after)
        events = sandbox.gateway.list(EVENT, managed_only=False)[0]
        owners = [sandbox.get(created)] if kind.core and kind.name != "CronJob" else []
        for manifest in (*sandbox.pods(), *events, *owners):
            kubernetes_schema.validate(manifest)


@every_kind
def test_it_ends_or_serves_for_ever(kind: WorkloadKind) -> None:
    sandbox = prepared("kai")
    created = sandbox.create(rendered("kai", kind))
    sandbox.ticks(3)
    sandbox.ticks(2, after=61)
    ended = sandbox.get(created)
    assert ended is not None
    serves = kind.kind in ENDLESS
    assert set(sandbox.phases()) == ({"Running"} if serves else {"Succeeded"})
    assert job_status(ended).phase == ("active" if serves else "succeeded")


@suspendable
def test_suspended_it_has_no_pods_and_resumed_it_has_them_again(kind: WorkloadKind) -> None:
    sandbox = prepared("kai")
    created = sandbox.create(rendered("kai", kind, seconds="600", suspended=True))
    sandbox.ticks(2)
    assert sandbox.pods() == []
    idle = sandbox.get(created)
    assert idle is not None
    assert job_status(idle).phase == "suspended"
    sandbox.gateway.update(rendered("kai", kind, seconds="600"), observed=idle)
    sandbox.ticks(3)
    assert set(sandbox.phases()) == {"Running"}
    running = sandbox.get(created)
    assert running is not None
    assert job_status(running).phase == "active"


def test_a_stateful_set_names_its_pods_by_number() -> None:
    sandbox = prepared("kai")
    manifest = rendered("kai", kind_named("StatefulSet"))
    manifest["spec"]["replicas"] = 2
    sandbox.create(manifest)
    sandbox.tick()
    name = manifest["metadata"]["name"]
    assert [pod["metadata"]["name"] for pod in sandbox.pods()] == [f"{name}-0", f"{name}-1"]


def test_fewer_replicas_end_the_surplus() -> None:
    sandbox = prepared("kai")
    manifest = rendered("kai", kind_named("Deployment"))
    manifest["spec"]["replicas"] = 3
    created = sandbox.create(manifest)
    sandbox.ticks(2)
    live = sandbox.get(created)
    assert live is not None
    live["spec"]["replicas"] = 1
    sandbox.gateway.update(live, observed=live)
    sandbox.tick()
    sandbox.tick(after=31)
    assert sandbox.phases() == ["Running"]


def test_a_huge_number_of_replicas_does_not_fill_the_database() -> None:
    sandbox = prepared("kube")
    manifest = rendered("kube", kind_named("Deployment"))
    manifest["spec"]["replicas"] = 999_999_999
    sandbox.create(manifest)
    sandbox.tick()
    assert len(sandbox.pods()) == 1000


def test_without_an_annotation_a_run_takes_ten_minutes_to_six_hours_and_the_same_for_the_gang() -> None:
    sandbox = prepared("kai")
    manifest = rendered("kai", kind_named("Job"), seconds="")
    manifest["spec"]["parallelism"] = 3
    sandbox.create(manifest)
    sandbox.tick()
    times = {run_seconds(pod) for pod in sandbox.pods()}
    assert len(times) == 1
    (seconds,) = times
    assert seconds is not None
    assert 600 <= seconds <= 6 * 3600
