"""How busy GPUs are, asked of a Prometheus over TLS; and where it is, kept like any credential."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from clusters.connection.models import MetricsSource
from clusters.connection.services.gateways import rotate_credentials
from clusters.connection.services.registration import remove_metrics_source, set_metrics_source
from clusters.inventory.models import Cluster
from clusters.watch.models import GpuUse, ObservedPod
from clusters.watch.services.usage import LATE, idle_since, measure_all
from portal.audit.models import AuditRecord
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from portal.kit.security.encryption import new_key
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.certificates import authority
from tests.support.listeners import ApiServer, Request, api_server

TOKEN = "canary-of-prometheus"
NOW = timezone.now()
MINUTE = timedelta(minutes=1)
pytestmark = pytest.mark.enable_socket


def series(pod: str, percent: str, namespace: str = "runai-llm-team", **labels: str) -> dict[str, Any]:
    """One GPU of a pod, as an exporter that runs as a pod of its own labels it."""
    own = {"pod": "dcgm-exporter-x", "namespace": "monitoring", "gpu": "0"}
    return {
        "metric": {**own, "exported_pod": pod, "exported_namespace": namespace, **labels},
        "value": [NOW.timestamp(), percent],
    }


def vector(*found: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"status": "success", "data": {"resultType": "vector", "result": list(found)}}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        server.answers = lambda _: vector()
        yield server


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With GPUs that work."""
    cluster.backend = "kubernetes"
    cluster.save(update_fields=["backend"])
    return cluster


@pytest.fixture
def source(prometheus: ApiServer, cluster: Cluster) -> MetricsSource:
    return set_metrics_source(
        cluster=cluster, server=prometheus.url, ca=prometheus.authority.pem, token=TOKEN, actor=SYSTEM
    )


@pytest.fixture
def pod(llm_team: Project) -> ObservedPod:
    made: ObservedPod = ObservedPodFactory(workload__project=llm_team, namespace="runai-llm-team", name="train-0")
    return made


def test_it_is_asked_once_before_it_is_kept_with_the_token_and_for_the_metric(
    prometheus: ApiServer, source: MetricsSource
) -> None:
    (requested,) = prometheus.requests
    assert (requested.method, requested.path) == ("GET", "/api/v1/query?query=DCGM_FI_DEV_GPU_UTIL")
    assert requested.headers["Authorization"] == f"Bearer {TOKEN}"
    assert AuditRecord.objects.get(action="cluster.metrics").detail["after"]["server"] == source.server


def test_the_token_stands_nowhere_in_the_database(source: MetricsSource) -> None:
    with connection.cursor() as cursor:
        for table in (MetricsSource._meta.db_table, AuditRecord._meta.db_table):
            cursor.execute(f"SELECT * FROM {table}")
            assert TOKEN not in str(cursor.fetchall())


def test_a_pod_is_as_busy_as_its_busiest_gpu(prometheus: ApiServer, source: MetricsSource, pod: ObservedPod) -> None:
    prometheus.answers = lambda _: vector(series("train-0", "0"), series("train-0", "0.3", gpu="1"))
    measure_all(now=NOW)
    use = GpuUse.objects.get(pod=pod)
    assert (use.percent, use.idle_since) == (1, None)


def test_idle_time_begins_with_the_first_idle_measurement_and_ends_with_work(
    prometheus: ApiServer, source: MetricsSource, pod: ObservedPod
) -> None:
    said = iter(["0", "0", "7", "0"])
    prometheus.answers = lambda _: vector(series("train-0", next(said)))
    found = []
    for minutes in range(4):
        measure_all(now=NOW + minutes * MINUTE)
        found.append(idle_since([pod.owner_id], now=NOW + minutes * MINUTE).get(pod.owner_id))
    assert found == [NOW, NOW, None, NOW + 3 * MINUTE]


def test_silence_is_not_idleness(prometheus: ApiServer, source: MetricsSource, pod: ObservedPod) -> None:
    prometheus.answers = lambda _: vector(series("train-0", "0"))
    measure_all(now=NOW)
    later = NOW + LATE + MINUTE
    assert idle_since([pod.owner_id], now=later) == {}
    measure_all(now=later)
    assert idle_since([pod.owner_id], now=later) == {pod.owner_id: later}


def test_one_pod_that_works_or_is_not_known_keeps_the_whole_workload_busy(
    prometheus: ApiServer, source: MetricsSource, llm_team: Project
) -> None:
    workload = WorkloadFactory(project=llm_team)
    for name in ("a", "b"):
        ObservedPodFactory(workload=workload, namespace="runai-llm-team", name=name)
    prometheus.answers = lambda _: vector(series("a", "0"))
    measure_all(now=NOW)
    assert idle_since([str(workload.pk)], now=NOW) == {}
    prometheus.answers = lambda _: vector(series("a", "0"), series("b", "0"))
    measure_all(now=NOW + MINUTE)
    assert idle_since([str(workload.pk)], now=NOW + MINUTE) == {str(workload.pk): NOW + MINUTE}


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>"),
        (200, {"data": {"result": [{"metric": {}}]}}),
        (200, {"data": {"result": [{"metric": 7, "value": [0, "1"]}]}}),
        (302, {}),
        (401, {}),
        (503, {}),
        (200, b"[" * 100_000),
    ],
)
def test_what_is_no_prometheus_is_said_and_changes_nothing(
    prometheus: ApiServer, source: MetricsSource, pod: ObservedPod, answer: tuple[int, Any]
) -> None:
    def answers(_: Request) -> tuple[int, Any]:
        return answer

    prometheus.answers = answers
    measure_all(now=NOW)
    source.refresh_from_db()
    assert source.error
    assert TOKEN not in source.error
    assert not GpuUse.objects.exists()


def test_sources_are_asked_side_by_side(prometheus: ApiServer, source: MetricsSource, tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=5)

    def together(_: Request) -> tuple[int, Any]:
        both.wait()
        return vector()

    far = ClusterFactory.create(name="far", backend="kubernetes")
    with api_server(tmp_path) as other:
        other.answers = prometheus.answers
        set_metrics_source(cluster=far, server=other.url, ca=other.authority.pem, actor=SYSTEM)
        prometheus.answers = other.answers = together
        measure_all()
    assert list(MetricsSource.objects.values_list("error", flat=True)) == ["", ""]


def test_hostile_labels_and_values_are_passed_over(
    prometheus: ApiServer, source: MetricsSource, pod: ObservedPod
) -> None:
    prometheus.answers = lambda _: vector(
        series("train-0", "NaN"), series("", "0"), series("x" * 5000, "0"), series("train-0", "1e300")
    )
    measure_all(now=NOW)
    assert list(GpuUse.objects.values_list("percent", flat=True)) == [100]


def test_less_than_nothing_is_no_measurement(prometheus: ApiServer, source: MetricsSource, pod: ObservedPod) -> None:
    prometheus.answers = lambda _: vector(series("train-0", "-1"))
    measure_all(now=NOW)
    assert not GpuUse.objects.exists()


@pytest.mark.parametrize(
    ("requested", "pointer"),
    [
        ({"server": "http://127.0.0.1:9090"}, "/server"),
        ({"server": "https://169.254.169.254/"}, "/server"),
        ({"server": "https://user:secret@127.0.0.1"}, "/server"),
        ({"metric": "up) or vector(0"}, "/metric"),
        ({"token": "two\nlines"}, "/token"),
        ({"ca": "no certificate"}, "/ca"),
    ],
)
def test_t42_what_is_wrong_is_refused_at_its_field_and_nothing_is_kept(
    prometheus: ApiServer, cluster: Cluster, requested: dict[str, str], pointer: str
) -> None:
    good = {"server": prometheus.url, "ca": prometheus.authority.pem}
    with pytest.raises(ValidationFailed) as refused:
        set_metrics_source(cluster=cluster, actor=SYSTEM, **{**good, **requested})
    assert refused.value.problems[0].pointer == pointer
    assert not MetricsSource.objects.exists()
    assert prometheus.requests == []


def test_a_simulated_cluster_has_nothing_to_measure(prometheus: ApiServer, cluster: Cluster) -> None:
    cluster.backend = "sandbox"
    with pytest.raises(ValidationFailed) as refused:
        set_metrics_source(cluster=cluster, server=prometheus.url, ca=prometheus.authority.pem, actor=SYSTEM)
    assert refused.value.code == "simulated"
    assert prometheus.requests == []


def test_a_stored_token_goes_only_where_it_was_entered_for(
    source: MetricsSource, cluster: Cluster, tmp_path: Path
) -> None:
    with api_server(tmp_path) as other, pytest.raises(ValidationFailed) as refused:
        set_metrics_source(cluster=cluster, server=other.url, ca=other.authority.pem, actor=SYSTEM)
    assert refused.value.code == "secret_needed"
    assert other.requests == []


def test_a_stored_token_goes_under_no_other_authority(
    prometheus: ApiServer, source: MetricsSource, cluster: Cluster
) -> None:
    before = len(prometheus.requests)
    for ca in ("", authority("another").pem):
        with pytest.raises(ValidationFailed) as refused:
            set_metrics_source(cluster=cluster, server=prometheus.url, ca=ca, actor=SYSTEM)
        assert refused.value.code == "secret_needed"
    assert len(prometheus.requests) == before
    set_metrics_source(cluster=cluster, server=prometheus.url, ca=prometheus.authority.pem, actor=SYSTEM)


def test_a_stored_token_whose_key_is_lost_is_asked_for_again(
    prometheus: ApiServer, source: MetricsSource, cluster: Cluster, settings: Any
) -> None:
    settings.RUNG_CREDENTIAL_KEYS = [new_key()]
    with pytest.raises(ValidationFailed) as refused:
        set_metrics_source(cluster=cluster, server=prometheus.url, ca=prometheus.authority.pem, actor=SYSTEM)
    assert (refused.value.problems[0].pointer, refused.value.code) == ("/token", "credential_unreadable")


def test_its_token_is_sealed_again_with_the_others(source: MetricsSource, settings: Any) -> None:
    settings.RUNG_CREDENTIAL_KEYS = [new_key(), *settings.RUNG_CREDENTIAL_KEYS]
    assert rotate_credentials(actor=SYSTEM).renewed == 1
    before = source.key_id
    source.refresh_from_db()
    assert source.key_id != before


def test_removing_it_is_recorded_once(source: MetricsSource, cluster: Cluster) -> None:
    remove_metrics_source(cluster=cluster, actor=SYSTEM)
    remove_metrics_source(cluster=cluster, actor=SYSTEM)
    assert not MetricsSource.objects.exists()
    assert AuditRecord.objects.filter(action="cluster.metrics").count() == 2
