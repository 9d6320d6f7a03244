"""What one repair costs: few statements, and nothing listed before it is written. What nobody wants is found."""

from itertools import takewhile

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.backends.memory import MemoryGateway
from clusters.connection.services.gateways import gateway_for
from clusters.inventory.models import Cluster, DirtyOwner
from clusters.inventory.services.dirty_owners import enqueue
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import NAMESPACE, RESOURCE_QUOTA
from clusters.sync.models import SyncOutcome, SyncRun, SyncState
from clusters.sync.services.reconcile import reconcile
from tenants.organisation.models import Project
from tests.clusters.synced import outcomes
from tests.factories.clusters import NodePoolFactory, build_cluster
from tests.factories.tenants import GPU, DepartmentFactory, ProjectFactory, ProjectQuotaFactory

MOST = 15
"""Statements of one near repair, without what begins and ends transactions."""
LIMIT = "rung-limit"


@pytest.fixture
def plain(db: None) -> Cluster:
    """A kube cluster of three projects, as it should be."""
    cluster = build_cluster(name="plain", flavour="kube", backend="memory")
    pool = NodePoolFactory(cluster=cluster, name="h100", is_default=True)
    department = DepartmentFactory(cluster=cluster)
    for number in range(3):
        project = ProjectFactory(department=department, name=f"p{number}", namespace=f"runai-p{number}")
        ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=4 * GPU, gpu_limit=8 * GPU)
    mark_dirty(cluster)
    assert reconcile(cluster).state == SyncState.SUCCEEDED
    return cluster


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The verbs of the calls to the API server, in order."""
    verbs: list[str] = []
    for verb in ("list", "get", "create", "update", "delete"):
        real = getattr(MemoryGateway, verb)

        def call(*given: object, _verb: str = verb, _real: object = real, **named: object) -> object:
            verbs.append(_verb)
            assert callable(_real)
            return _real(*given, **named)

        monkeypatch.setattr(MemoryGateway, verb, call)
    return verbs


def quota(cluster: Cluster, space: str, name: str = LIMIT) -> Manifest:
    found = gateway_for(cluster).get(ObjectRef(RESOURCE_QUOTA, name, space))
    assert found is not None
    return found


def edited(cluster: Cluster, space: str) -> None:
    """Somebody raises the limit of a project, and the observer tells of it."""
    live = quota(cluster, space)
    hard = {**live["spec"]["hard"], "requests.nvidia.com/gpu": "99"}
    gateway_for(cluster).update({**live, "spec": {"hard": hard}}, observed=live)
    told(cluster, space)


def told(cluster: Cluster, space: str) -> None:
    enqueue(cluster.pk, [Project.objects.get(namespace=space).owner])


def test_a_near_repair_takes_few_statements(plain: Cluster) -> None:
    before = quota(plain, "runai-p1")["spec"]
    edited(plain, "runai-p1")
    fresh = Cluster.objects.get(pk=plain.pk)
    with CaptureQueriesContext(connection) as captured:
        run = reconcile(fresh)
    statements = [each["sql"] for each in captured.captured_queries]
    requested = [each for each in statements if not each.startswith(("SAVEPOINT", "RELEASE", "BEGIN"))]
    assert (run.state, outcomes(run)) == (SyncState.SUCCEEDED, [("update", LIMIT, True)])
    assert quota(plain, "runai-p1")["spec"] == before
    assert len(requested) <= MOST, "\n".join(requested)


def test_nothing_is_listed_before_the_repair_is_written(plain: Cluster, requested: list[str]) -> None:
    edited(plain, "runai-p1")
    requested.clear()
    reconcile(plain)
    assert "update" in requested
    assert "list" not in list(takewhile(lambda verb: verb != "update", requested))


def test_what_nobody_wants_in_the_namespace_goes_in_the_same_run(plain: Cluster) -> None:
    live = quota(plain, "runai-p1")
    gateway_for(plain).create({**live, "metadata": {**live["metadata"], "name": "rung-another"}})
    edited(plain, "runai-p1")
    run = reconcile(plain)
    assert run.scope == Project.objects.get(namespace="runai-p1").owner
    assert outcomes(run) == [("update", LIMIT, True), ("delete", "rung-another", True)]
    assert not DirtyOwner.objects.exists()


def test_what_a_later_generation_wants_meanwhile_is_not_taken_for_extra(
    plain: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its quota appears between what was asked for by name and what is listed: by then it is wanted."""
    project = Project.objects.get(namespace="runai-p1")
    quotas = project.quotas.all()
    quotas.update(gpu_limit=None)
    told(plain, "runai-p1")
    assert ("delete", LIMIT, True) in outcomes(reconcile(plain))
    edited_before = quota(plain, "runai-p2")
    real = MemoryGateway.list

    def appears(gateway: MemoryGateway, kind: Kind, **requested: object) -> tuple[list[Manifest], str]:
        if kind == RESOURCE_QUOTA and not quotas.filter(gpu_limit=8 * GPU).exists():
            quotas.update(gpu_limit=8 * GPU)
            metadata = {**edited_before["metadata"], "namespace": "runai-p1"}
            labels = {**metadata["labels"], "rung.dev/owner": project.owner}
            gateway.create({**edited_before, "metadata": {**metadata, "labels": labels}})
        return real(gateway, kind, **requested)

    monkeypatch.setattr(MemoryGateway, "list", appears)
    told(plain, "runai-p1")
    assert outcomes(reconcile(plain)) == []
    assert quota(plain, "runai-p1")


def test_a_run_that_was_taken_over_tells_what_it_did_and_closes_nothing(
    plain: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(plain, "runai-p1")
    real = MemoryGateway.update

    def taken_over(gateway: MemoryGateway, manifest: Manifest, *, observed: Manifest) -> Manifest:
        SyncRun.objects.filter(state=SyncState.RUNNING).update(state=SyncState.FAILED, error_code="abandoned")
        return real(gateway, manifest, observed=observed)

    monkeypatch.setattr(MemoryGateway, "update", taken_over)
    run = reconcile(plain)
    assert (run.state, run.error_code) == (SyncState.FAILED, "abandoned")
    assert SyncOutcome.objects.filter(run=run, ok=True).count() == 1
    assert DirtyOwner.objects.exists()


def test_an_absent_namespace_is_recreated_with_all_that_is_in_it(plain: Cluster) -> None:
    gateway = gateway_for(plain)
    for kind_name in ("rung-limit", "rung-deserved"):
        gateway.delete(ObjectRef(RESOURCE_QUOTA, kind_name, "runai-p1"))
    gateway.delete(ObjectRef(NAMESPACE, "runai-p1"))
    told(plain, "runai-p1")
    run = reconcile(plain)
    assert run.state == SyncState.SUCCEEDED
    assert {name for action, name, _ in outcomes(run) if action == "create"} >= {"runai-p1", LIMIT}
