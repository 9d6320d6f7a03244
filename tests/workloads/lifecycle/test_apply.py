"""Workers bring rows about: claims, tries, refusals, and what is given up."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.backends.memory import forget_all, store_of
from clusters.inventory.models import Cluster
from clusters.ports.gateway import (
    AdmissionDenied,
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Invalid,
    Manifest,
    NotAuthorized,
    NotServed,
    ObjectRef,
    QuotaExceeded,
)
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, bare_pod, job, spec_of
from workloads.dictionary.models import Priority
from workloads.lifecycle import tasks
from workloads.lifecycle.services import apply as applying
from workloads.lifecycle.services.actions import change_priority, delete, stop
from workloads.lifecycle.services.apply import apply
from workloads.lifecycle.services.apply_queue import drain
from workloads.state.models import Phase, Workload
from workloads.submission.services import submit


@pytest.fixture
def workload(llm_team: Project, cluster: Cluster) -> Workload:
    """A plain Job on a cluster in memory that holds its namespace."""
    forget_all()
    reconcile(cluster)
    return submit(spec=spec_of(job(gpus=1)), project=llm_team, actor=SYSTEM)


def jobs(cluster: Cluster) -> list[Manifest]:
    """The Jobs the cluster holds."""
    return [manifest for (key, _, _), manifest in store_of(str(cluster.pk)).objects.items() if key == "Job.batch"]


def objects(cluster: Cluster) -> list[str]:
    """Their names."""
    return [manifest["metadata"]["name"] for manifest in jobs(cluster)]


def now_due(workload: Workload) -> Workload:
    """The row as it is, made due."""
    Workload.objects.filter(pk=workload.pk).update(due_at=timezone.now())
    workload.refresh_from_db()
    return workload


def test_a_due_row_becomes_one_object_named_after_it(workload: Workload, cluster: Cluster) -> None:
    assert apply(workload.pk) is True
    workload.refresh_from_db()
    assert objects(cluster) == [f"train-{workload.pk.hex[:8]}"]
    assert (workload.phase, workload.applied_generation, workload.due_at) == (Phase.PENDING, 1, None)


def test_what_is_not_due_is_left_alone(workload: Workload) -> None:
    apply(workload.pk)
    assert apply(workload.pk) is False
    assert drain() == 0


def test_one_message_applies_every_due_workload_of_its_cluster(
    workload: Workload, cluster: Cluster, llm_team: Project
) -> None:
    second = submit(spec=spec_of(job("second")), project=llm_team, actor=SYSTEM)
    tasks.apply_due(str(cluster.pk))
    assert set(objects(cluster)) == {f"train-{workload.pk.hex[:8]}", f"second-{second.pk.hex[:8]}"}


def test_a_second_application_writes_nothing(workload: Workload, cluster: Cluster) -> None:
    apply(workload.pk)
    store_of(str(cluster.pk)).writes.clear()
    now_due(workload)
    tasks.apply_due(str(cluster.pk))
    assert store_of(str(cluster.pk)).writes == []


def test_a_deleted_workloads_object_goes_and_the_row_is_final(workload: Workload, cluster: Cluster) -> None:
    apply(workload.pk)
    workload.refresh_from_db()
    delete(workload=workload, actor=SYSTEM)
    apply(workload.pk)
    workload.refresh_from_db()
    assert objects(cluster) == []
    assert workload.deleted_at is not None
    assert apply(workload.pk) is False


def test_delete_before_the_first_application_creates_nothing(workload: Workload, cluster: Cluster) -> None:
    delete(workload=workload, actor=SYSTEM)
    apply(workload.pk)
    assert objects(cluster) == []


def test_stop_suspends_where_the_kind_can(workload: Workload, cluster: Cluster) -> None:
    apply(workload.pk)
    workload.refresh_from_db()
    stop(workload=workload, actor=SYSTEM)
    apply(workload.pk)
    workload.refresh_from_db()
    assert [manifest["spec"]["suspend"] for manifest in jobs(cluster)] == [True]
    assert workload.phase == Phase.STOPPED


def failing(cluster: Cluster, error: Exception) -> None:
    """The cluster answers every write with this error."""

    def refuse(_verb: str, _ref: ObjectRef) -> None:
        raise error

    store_of(str(cluster.pk)).faults.append(refuse)


@pytest.mark.parametrize(
    ("error", "least"),
    [
        pytest.param(ClusterUnreachable("no route to host"), 2, id="unreachable: soon again"),
        pytest.param(ClusterBusy("too many requests", retry_after=90), 90, id="busy: not before it said"),
    ],
)
def test_what_may_pass_is_tried_again_later(
    workload: Workload, cluster: Cluster, error: ClusterError, least: int
) -> None:
    failing(cluster, error)
    apply(workload.pk)
    workload.refresh_from_db()
    assert (workload.phase, workload.apply_error) == (Phase.CREATING, error.message)
    assert workload.due_at is not None
    assert workload.due_at >= timezone.now() + timedelta(seconds=least - 1)


def test_a_cluster_that_stays_away_never_makes_it_fail(workload: Workload, cluster: Cluster) -> None:
    failing(cluster, ClusterUnreachable("no route to host"))
    for _ in range(applying.MOST_ATTEMPTS * 2):
        apply(now_due(workload).pk)
    workload.refresh_from_db()
    assert workload.phase == Phase.CREATING
    assert workload.due_at is not None
    assert workload.due_at <= timezone.now() + applying.LONGEST_WAIT
    assert workload.timeline.filter(reason="ApplyDelayed").count() == 1


def tried(workload: Workload, times: int = 1) -> Workload:
    """The row after so many tries."""
    for _ in range(times):
        apply(now_due(workload).pk)
    workload.refresh_from_db()
    return workload


@pytest.mark.parametrize(
    ("error", "pointer"),
    [
        pytest.param(Invalid("spec.template: Invalid value", pointer="/spec/template"), "/spec/template", id="422"),
        pytest.param(AdmissionDenied("violates PodSecurity"), None, id="403 of admission"),
    ],
)
def test_an_object_that_is_refused_twice_fails_with_the_servers_words(
    workload: Workload, cluster: Cluster, error: ClusterError, pointer: str | None
) -> None:
    failing(cluster, error)
    assert tried(workload).phase == Phase.CREATING
    assert tried(workload).phase == Phase.FAILED
    assert (workload.phase_reason, workload.phase_message) == (error.code, error.message)
    assert (workload.apply_error, workload.due_at) == (error.message, None)
    assert workload.timeline.get(reason=error.code).detail.get("pointer") == pointer


def test_a_refusal_that_the_next_try_does_not_repeat_fails_nothing(workload: Workload, cluster: Cluster) -> None:
    failing(cluster, Invalid("not now"))
    tried(workload)
    store_of(str(cluster.pk)).faults.clear()
    assert tried(workload).phase == Phase.PENDING
    assert (workload.refusals, workload.apply_error) == (0, "")


@pytest.mark.parametrize("shows", ["its object", "a pod of it"])
def test_a_refused_change_never_fails_what_the_cluster_holds(workload: Workload, cluster: Cluster, shows: str) -> None:
    if shows == "its object":
        apply(workload.pk)
    else:
        ObservedPodFactory(workload=Workload.objects.select_related("priority").get(pk=workload.pk))
    Workload.objects.filter(pk=workload.pk).update(generation=2)
    failing(cluster, Invalid("spec.template: field is immutable"))
    assert tried(workload, 4).phase != Phase.FAILED
    assert workload.due_at is not None
    assert "immutable" in workload.apply_error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(NotAuthorized('User "rung" cannot create resource "jobs"'), id="403 of authorization"),
        pytest.param(ClusterRefused("The API server returned status 405."), id="a refusal that blames no object"),
        pytest.param(NotServed("The cluster does not serve this kind."), id="a kind that is not served yet"),
        pytest.param(QuotaExceeded("exceeded quota: somebody-elses"), id="a quota without room"),
    ],
)
def test_what_does_not_blame_the_object_waits_however_often_it_is_said(
    workload: Workload, cluster: Cluster, error: ClusterError
) -> None:
    failing(cluster, error)
    assert tried(workload, applying.MOST_ATTEMPTS * 2).phase in {Phase.CREATING, Phase.PENDING}
    assert workload.due_at is not None
    store_of(str(cluster.pk)).faults.clear()
    assert tried(workload).applied_generation == 1


def test_the_duplicate_create_of_another_worker_is_no_conflict(workload: Workload, cluster: Cluster) -> None:
    def other_worker(verb: str, _ref: ObjectRef) -> None:
        store_of(str(cluster.pk)).faults.clear()
        Workload.objects.filter(pk=workload.pk).update(claimed_until=None)  # as if the claim had expired
        apply(now_due(workload).pk)

    store_of(str(cluster.pk)).faults.append(other_worker)
    assert tried(workload, 2).phase == Phase.PENDING
    assert objects(cluster) == [f"train-{workload.pk.hex[:8]}"]
    assert not workload.timeline.filter(phase=Phase.FAILED).exists()


def test_a_foreign_object_with_the_name_fails_the_workload_and_stays(workload: Workload, cluster: Cluster) -> None:
    apply(workload.pk)
    (mine,) = jobs(cluster)
    foreign = store_of(str(cluster.pk)).objects["Job.batch", mine["metadata"]["namespace"], mine["metadata"]["name"]]
    foreign["metadata"]["labels"] = {"app": "somebody's"}
    assert tried(workload, 2).phase == Phase.FAILED
    assert (workload.phase_reason, jobs(cluster)) == ("object_conflict", [foreign])
    assert workload.timeline.get(reason="object_conflict").detail == {"pointer": "/metadata/name"}


def test_an_object_that_a_late_worker_creates_after_the_delete_goes_again(workload: Workload, cluster: Cluster) -> None:
    def meanwhile(_verb: str, _ref: ObjectRef) -> None:
        store_of(str(cluster.pk)).faults.clear()
        delete(workload=Workload.objects.get(pk=workload.pk), actor=SYSTEM)
        Workload.objects.filter(pk=workload.pk).update(claimed_until=None)
        apply(workload.pk)
        assert Workload.objects.get(pk=workload.pk).deleted_at is not None

    store_of(str(cluster.pk)).faults.append(meanwhile)
    apply(workload.pk)
    assert len(objects(cluster)) == 1
    assert apply(workload.pk)
    assert objects(cluster) == []
    assert drain() == 0


def test_a_claimed_row_is_left_to_its_worker(workload: Workload) -> None:
    Workload.objects.filter(pk=workload.pk).update(claimed_until=timezone.now() + timedelta(minutes=1))
    assert apply(workload.pk) is False
    Workload.objects.filter(pk=workload.pk).update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert apply(workload.pk) is True


def test_f25_a_row_that_breaks_every_worker_is_given_up(workload: Workload, cluster: Cluster) -> None:
    failing(cluster, RuntimeError("boom"))
    for _ in range(applying.MOST_ATTEMPTS + 1):
        apply(now_due(workload).pk)
    workload.refresh_from_db()
    assert (workload.phase, workload.phase_reason) == (Phase.FAILED, "ApplyFailed")
    assert "boom" in workload.phase_message


def test_a_paused_cluster_is_left_alone(workload: Workload, cluster: Cluster) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state="paused", paused_reason="another uid")
    apply(workload.pk)
    workload.refresh_from_db()
    assert objects(cluster) == []
    assert workload.apply_error == "another uid"
    assert workload.due_at is not None


def test_an_outcome_does_not_overwrite_what_was_asked_meanwhile(workload: Workload, cluster: Cluster) -> None:
    def meanwhile(_verb: str, _ref: ObjectRef) -> None:
        stop(workload=Workload.objects.get(pk=workload.pk), actor=SYSTEM)

    store_of(str(cluster.pk)).faults.append(meanwhile)
    apply(workload.pk)
    workload.refresh_from_db()
    assert (workload.phase, workload.applied_generation) == (Phase.STOPPING, 0)
    assert workload.due_at is not None


def test_running_pods_keep_their_template_when_the_priority_changes(workload: Workload, cluster: Cluster) -> None:
    apply(workload.pk)
    pod = ObservedPodFactory(workload=Workload.objects.select_related("priority").get(pk=workload.pk))
    Workload.objects.filter(pk=workload.pk).update(phase=Phase.RUNNING, running_pods=1)
    store_of(str(cluster.pk)).writes.clear()
    change_priority(workload=Workload.objects.get(pk=workload.pk), priority="low", actor=SYSTEM)
    apply(workload.pk)
    assert store_of(str(cluster.pk)).writes == []
    pod.delete()
    apply(now_due(workload).pk)
    assert [each["spec"]["template"]["spec"]["priorityClassName"] for each in jobs(cluster)] == ["low"]


@pytest.mark.parametrize(("flavour", "applied"), [("kai", 2), ("kube", 1)])
def test_an_old_number_of_a_running_pod_delays_a_change_only_where_it_counts(
    workload: Workload, cluster: Cluster, flavour: str, applied: int
) -> None:
    apply(workload.pk)
    row = Workload.objects.select_related("priority").get(pk=workload.pk)
    ObservedPodFactory(workload=row, priority=row.priority_value - 1)
    Cluster.objects.update(flavour=flavour)
    Workload.objects.filter(pk=workload.pk).update(generation=2)
    apply(now_due(workload).pk)
    workload.refresh_from_db()
    assert (workload.applied_generation, objects(cluster)) == (applied, [f"train-{workload.pk.hex[:8]}"])


def test_waiting_pods_are_recreated_with_the_new_priority(workload: Workload, cluster: Cluster) -> None:
    apply(workload.pk)
    row = Workload.objects.select_related("priority").get(pk=workload.pk)
    ObservedPodFactory(workload=row, phase="Pending", node_name="", started_at=None)
    change_priority(workload=row, priority="low", actor=SYSTEM)
    apply(workload.pk)
    assert objects(cluster) == []
    workload.refresh_from_db()
    assert (workload.applied_generation, workload.priority) == (0, Priority.objects.get(name="low"))
    apply(now_due(workload).pk)
    assert objects(cluster) == [f"train-{workload.pk.hex[:8]}"]


def test_a_task_for_a_cluster_that_is_gone_does_nothing(db: None) -> None:
    tasks.apply_due("00000000-0000-0000-0000-000000000000")


def test_a_bare_pod_without_room_in_a_quota_waits_and_is_asked_for_again(llm_team: Project, cluster: Cluster) -> None:
    forget_all()
    Cluster.objects.update(flavour="kube")
    reconcile(Cluster.objects.get(pk=cluster.pk))
    pod = submit(spec=spec_of(bare_pod()), project=Project.objects.get(pk=llm_team.pk), actor=SYSTEM)
    said = (
        "exceeded quota: rung-limit, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: 4"
    )
    failing(cluster, QuotaExceeded(f'pods "pod" is forbidden: {said}'))
    apply(pod.pk)
    pod.refresh_from_db()
    assert (pod.phase, pod.phase_reason, pod.apply_error) == (Phase.PENDING, "OverLimit", "")
    assert pod.due_at is not None
    store_of(str(cluster.pk)).faults.clear()
    apply(now_due(pod).pk)
    pod.refresh_from_db()
    assert (pod.applied_generation, pod.due_at) == (1, None)
