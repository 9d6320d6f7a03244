"""T47, T57: what an API server that is connected already says of its objects: believed as far as it can be true."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clusters.backends.memory import MemoryStore, forget_all, store_of
from clusters.inventory.models import Cluster, Node
from clusters.ports.gateway import ClusterError, Kind
from clusters.ports.objects import (
    APPLIED_HASH,
    EVENT,
    GENERATION,
    MANAGED_BY,
    MANAGER,
    NODE,
    OWNER,
    POD,
    PRIORITY_CLASS,
    kind_of_workload,
)
from clusters.ports.workload_kinds import KINDS
from clusters.watch.models import ClusterEvent, ObservedObject, ObservedPod, ObserverLease
from clusters.watch.services.informers import observe_cluster
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

Clients = Callable[[User], Client]
JOB = next(kind_of_workload(kind) for kind in KINDS if kind.kind == "Job")
EVIL = "<script>alert(1)</script>\x1b]8;;https://evil.example\x07\x00\u202e"
BEYOND = [2**31, 2**63, 2**64, -(2**63), 10**4000, -1, 1e308, float("inf"), float("nan"), True]
TIMES = [
    "99999-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+14:00",
    "1969-01-01T00:00:00Z",
    "2026-11-21T06:00:00",
    "2026-11-21T06:00:00Z",
    "yesterday",
]
AMOUNTS = ["1e999", "1e99", "9" * 10_000, "-1", "-1e18", "0x8", "1Gi", "99999E", "NaN", "", "½", "8"]
TEXTS = [EVIL, "\ud800", "\x00", "x" * 300_000, "", "1" * 5000, "True", "False", "Failed", "Running", "Warning"]
REASONS = ["PreemptionByScheduler", "Preempted", "Evict", "FailedCreate", "Unschedulable", "ImagePullBackOff"]
MESSAGES = [
    "preempted by higher priority workload " + "a/" * 3000,
    "Preempted by pod " + "0" * 64,
    "0/" + "9" * 7000 + " nodes are available",
    "exceeded quota: x, requested: y, used: z, limited: w",
]
TYPES = ["DisruptionTarget", "PodScheduled", "Ready", "Failed", "Complete", "Suspended"]
FIELDS = [
    "state",
    "waiting",
    "terminated",
    "finishedAt",
    "exitCode",
    "reason",
    "message",
    "type",
    "status",
    "lastTransitionTime",
    "resources",
    "requests",
    "limits",
    "nvidia.com/gpu",
    "nvidia.com/mig-9g.80gb",
    "cpu",
    "memory",
    "key",
    "value",
    "effect",
    "operator",
    "count",
    "lastObservedTime",
    "kind",
    "name",
    "uid",
    "namespace",
    "controller",
    "component",
]
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.sampled_from([*BEYOND, *TIMES, *AMOUNTS, *TEXTS, *REASONS, *MESSAGES, *TYPES]),
    st.integers(),
    st.text(max_size=20),
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=8,
)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    """One of these, or anything."""
    return st.sampled_from(values) | ANYTHING


def fields(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these fields, or anything at all."""
    return st.fixed_dictionaries({}, optional=known) | ANYTHING


CONDITIONS = (
    st.lists(
        fields(
            type=one_of(*TYPES),
            status=one_of("True", "False"),
            reason=one_of(*REASONS),
            message=one_of(*MESSAGES),
            lastTransitionTime=one_of(*TIMES),
        ),
        max_size=3,
    )
    | ANYTHING
)
QUANTITIES = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-" + "9" * 5000 + "g.80gb", "cpu", "memory", "pods"]),
    one_of(*AMOUNTS, *BEYOND),
    max_size=4,
)
CONTAINERS = st.lists(fields(resources=fields(limits=QUANTITIES, requests=QUANTITIES)), max_size=2) | ANYTHING
LABELS = (
    st.dictionaries(
        st.sampled_from(
            [OWNER, MANAGED_BY, "rung.dev/node-pool", "kai.scheduler/queue", "nvidia.com/gpu.product", EVIL]
        ),
        one_of("workload.mine", "workload." + "x" * 500, MANAGER, EVIL),
        max_size=4,
    )
    | ANYTHING
)


def metadata(ours: str) -> st.SearchStrategy[Any]:
    """Ours carries the label of a workload that is there."""
    marks = st.just({MANAGED_BY: MANAGER, OWNER: f"workload.{ours}"})
    return fields(
        name=one_of("one", "two", EVIL, "n" * 10_000),
        namespace=one_of("runai-llm-team", "n" * 10_000),
        uid=one_of("u1", "u2", "u" * 10_000),
        resourceVersion=one_of("7", 7, "9" * 10_000, "text"),
        labels=marks | LABELS,
        annotations=fields(
            **{APPLIED_HASH: one_of("h" * 500), GENERATION: one_of("9" * 500), "gpu-fraction": one_of("0.5", "1e99")}
        ),
        creationTimestamp=one_of(*TIMES),
        deletionTimestamp=one_of(*TIMES),
        deletionGracePeriodSeconds=one_of(*BEYOND),
        ownerReferences=ANYTHING,
    )


def objects(ours: str) -> st.SearchStrategy[list[tuple[Kind, Any]]]:
    """Pods, nodes, events, jobs and others, hardly any of which is one."""
    states = st.lists(fields(state=ANYTHING), max_size=2) | ANYTHING
    whole: dict[Kind, dict[str, st.SearchStrategy[Any]]] = {
        POD: {
            "spec": fields(
                nodeName=one_of("node-0", EVIL),
                priority=one_of(*BEYOND),
                priorityClassName=one_of("low", EVIL),
                terminationGracePeriodSeconds=one_of(*BEYOND),
                containers=CONTAINERS,
                initContainers=CONTAINERS,
                nodeSelector=LABELS,
                tolerations=ANYTHING,
            ),
            "status": fields(
                phase=one_of("Running", "Pending", "Failed", EVIL),
                conditions=CONDITIONS,
                startTime=one_of(*TIMES),
                containerStatuses=states,
                nominatedNodeName=one_of(EVIL),
            ),
        },
        NODE: {
            "spec": fields(taints=ANYTHING, unschedulable=ANYTHING),
            "status": fields(allocatable=QUANTITIES, conditions=CONDITIONS),
        },
        EVENT: {
            "involvedObject": fields(kind=one_of("Pod", "Job"), uid=one_of("u1", "u2", "u" * 999), name=one_of(EVIL)),
            "reason": one_of(*REASONS),
            "message": one_of(*MESSAGES),
            "type": one_of(EVIL),
            "count": one_of(*BEYOND),
            "series": fields(count=one_of(*BEYOND), lastObservedTime=one_of(*TIMES)),
            "source": ANYTHING,
            "lastTimestamp": one_of(*TIMES),
        },
        JOB: {"spec": ANYTHING, "status": fields(conditions=CONDITIONS, phase=ANYTHING, jobStatus=ANYTHING)},
        PRIORITY_CLASS: {"value": ANYTHING},
    }
    return st.lists(
        st.one_of(
            *(
                st.tuples(st.just(kind), st.fixed_dictionaries({"metadata": metadata(ours)}, optional=parts))
                for kind, parts in whole.items()
            )
        ),
        min_size=1,
        max_size=6,
    )


def show(cluster: Cluster, found: list[tuple[Kind, Any]]) -> MemoryStore:
    """From now on the cluster holds these."""
    store = store_of(str(cluster.pk))
    store.version += 1
    for number, (kind, manifest) in enumerate(found):
        store.objects[kind.key, "", f"hostile-{number}"] = manifest
    return store


def rows() -> list[Any]:
    """Everything that was observed."""
    return [row for model in (Node, ObservedPod, ClusterEvent, ObservedObject) for row in model.objects.all()]


def pages(client: Client, cluster: Cluster, workload: Workload) -> list[str]:
    """Where it is shown."""
    tabs = [f"{reverse('workloads:detail', args=[workload.pk])}?tab={tab}" for tab in ("overview", "pods", "events")]
    return [
        *tabs,
        "/",
        "/clusters/",
        f"/clusters/{cluster.name}/",
        f"/clusters/{cluster.name}/?tab=drift",
        "/workloads/",
    ]


def shown(client: Client, cluster: Cluster, workload: Workload) -> str:
    """All of the pages together."""
    answers = [client.get(page) for page in pages(client, cluster, workload)]
    assert {answer.status_code for answer in answers} == {200}
    return "".join(answer.content.decode() for answer in answers)


@pytest.fixture
def workload(llm_team: Project) -> Workload:
    """What the cluster may rightly speak of."""
    made: Workload = WorkloadFactory(project=llm_team)
    return made


@pytest.fixture
def watched(workload: Workload) -> Iterator[Cluster]:
    """Its cluster, in memory."""
    cluster = workload.project.cluster
    Cluster.objects.filter(pk=cluster.pk).update(backend="memory")
    cluster.refresh_from_db()
    yield cluster
    forget_all()


def check(found: list[tuple[Kind, Any]], cluster: Cluster, workload: Workload, client: Client) -> None:
    """One look: stored or refused with a reason; what is stored is valid, and every page shows it."""
    forget_all()
    for model in (PreemptionRecord, Node, ObservedPod, ClusterEvent, ObservedObject):
        model.objects.all().delete()
    ObserverLease.objects.all().delete()
    show(cluster, found)
    with suppress(ClusterError):
        observe_cluster(cluster)
    for row in rows():
        row.full_clean(exclude=["cluster", "pool"], validate_unique=False)
    text = shown(client, cluster, workload)
    assert "<script>alert(1)" not in text
    assert not {"\x00", "\x1b", "\u202e"} & set(text)


def examples(count: int) -> Callable[[Any], Any]:
    """So many, always the same ones: a database and pages take their time."""
    fixture = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=fixture,
    )


@pytest.mark.django_db
def test_a_pod_in_another_namespace_cannot_claim_a_workload(watched: Cluster, workload: Workload) -> None:
    marks = {OWNER: f"workload.{workload.pk}"}
    thief = {"name": "a", "uid": "u1", "namespace": "elsewhere", "labels": marks}
    own = {"name": "b", "uid": "u2", "namespace": workload.project.namespace, "labels": marks}
    show(watched, [(POD, {"metadata": thief}), (POD, {"metadata": own})])
    observe_cluster(watched)
    assert dict(ObservedPod.objects.values_list("uid", "owner_id")) == {"u1": "", "u2": str(workload.pk)}


@pytest.mark.django_db
@examples(6)
@given(data=st.data())
def test_t47_whatever_objects_say_is_stored_validly_and_shown(
    data: st.DataObject, watched: Cluster, workload: Workload, alice: User, client_of: Clients
) -> None:
    check(data.draw(objects(str(workload.pk))), watched, workload, client_of(alice))


@pytest.mark.postgres
@examples(6)
@given(data=st.data())
def test_t47_postgresql_takes_what_is_stored(
    data: st.DataObject, watched: Cluster, workload: Workload, alice: User, client_of: Clients
) -> None:
    check(data.draw(objects(str(workload.pk))), watched, workload, client_of(alice))
