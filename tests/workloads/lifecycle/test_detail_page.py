"""One workload's page: its headline, its tabs, its verbs, and who sees it."""

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.watch.models import ClusterEvent, ObservedPod
from portal.audit.models import AuditRecord
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import REFUSAL, ObservedPodFactory, WorkloadFactory, pytorch_job, spec_of
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import EventType, Phase, Workload
from workloads.state.selectors.workloads import MANY_READ, READERS
from workloads.state.services import note

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
TABS = ["overview", "pods", "events", "logs", "yaml"]
EVIL = '<script>alert(1)</script><img src=x onerror=alert(1)><a href="javascript:alert(1)" hx-get="/x">x</a>'


@pytest.fixture
def workload(llm_team: Project, alice: User) -> Workload:
    """A workload of alice that runs on two GPUs and saved a checkpoint two hours ago."""
    ago = timezone.now() - timedelta(hours=3)
    made: Workload = WorkloadFactory.create(
        project=llm_team,
        name="llm-finetune",
        submitted_by="alice",
        submitted_by_id=str(alice.pk),
        phase=Phase.RUNNING,
        gpu_milli=2000,
        allocated_gpu_milli=2000,
        started_at=ago,
    )
    saved = timezone.now() - timedelta(hours=2, minutes=1)
    made.spec["annotations"] = {"rung.dev/last-checkpoint-at": saved.isoformat()}
    made.save(update_fields=["spec"])
    ObservedPodFactory(workload=made, name="llm-finetune-0", gpu_milli=2000)
    return made


def address(workload: Workload, more: str = "") -> str:
    return f"/workloads/{workload.pk}/{more}"


def page(client: Client, where: str) -> str:
    answer = client.get(where)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_has_its_address(client_of: Clients, workload: Workload, alice: User, tab: str) -> None:
    text = page(client_of(alice), address(workload, f"?tab={tab}"))
    assert f'href="{address(workload)}?tab={tab}"' in " ".join(text.split()).replace('aria-current="page" ', "")
    assert "llm-finetune" in text


def test_images_are_shown_as_they_were_resolved(client_of: Clients, llm_team: Project, alice: User) -> None:
    manifest = pytorch_job("train")
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container["image"] = "nvidia/cuda:12.4.0-base"
    made = WorkloadFactory.create(project=llm_team, name="train", spec=spec_of(manifest).as_json())
    assert "docker.io/nvidia/cuda:12.4.0-base" in page(client_of(alice), address(made))


def test_the_pod_template_is_named_as_the_source(client_of: Clients, llm_team: Project, alice: User) -> None:
    made = WorkloadFactory.create(project=llm_team, priority_source="pod template")
    assert "set by priorityClassName in the pod template" in page(client_of(alice), address(made))


@pytest.mark.parametrize("tab", TABS)
def test_a_foreign_workload_is_as_absent_as_none(
    client_of: Clients, workload: Workload, charlie: User, tab: str
) -> None:
    client = client_of(charlie)
    foreign = client.get(address(workload, f"?tab={tab}"))
    absent = client.get(f"/workloads/{uuid.uuid4()}/?tab={tab}")
    assert foreign.status_code == absent.status_code == 404
    assert b"llm-finetune" not in foreign.content


def test_t54_a_foreign_part_is_absent_too(client_of: Clients, workload: Workload, charlie: User) -> None:
    headers = {"HX-Request": "true", "HX-Target": "workload"}
    answer = client_of(charlie).get(address(workload), headers=headers)
    assert answer.status_code == 404
    assert b"llm-finetune" not in answer.content


def test_a_waiting_one_says_why_and_offers_what_would_help(
    client_of: Clients, llm_team: Project, alice: User, bob: User
) -> None:
    Cluster.objects.update(observed_at=timezone.now())
    manifest = pytorch_job("big", gpus=8)
    waiting = WorkloadFactory.create(
        project=llm_team,
        name="big",
        gpu_milli=8000,
        preemptibility="non-preemptible",
        spec=spec_of(manifest).as_json(),
        submitted_by_id=str(alice.pk),
    )
    text = page(client_of(alice), address(waiting))
    assert "4 GPU" in text
    assert f'action="/workloads/{waiting.pk}/way-out/"' in text
    assert "Make it preemptible" in text
    assert "way-out" not in page(client_of(bob), address(waiting)), "who may not change it is offered nothing"


def test_deleting_asks_with_what_would_be_lost(client_of: Clients, workload: Workload, alice: User) -> None:
    text = page(client_of(alice), address(workload))
    lost = "It is running on 2 GPUs. Last reported checkpoint: 2 h 1 m ago."
    assert f"Delete “llm-finetune”? {lost}" in text
    assert f"Stop “llm-finetune”? You can resume it. {lost}" in text


def test_stopping_says_when_a_declared_rhythm_saved_last(client_of: Clients, workload: Workload, alice: User) -> None:
    workload.spec["annotations"] = {"rung.dev/checkpoint-interval": "50m"}
    workload.save()
    assert "Last reported checkpoint: 30 min ago" in page(client_of(alice), address(workload))
    workload.spec["annotations"] = {}
    workload.save()
    assert "It has run on 2 GPUs for 3 h without a reported checkpoint." in page(client_of(alice), address(workload))


@pytest.mark.parametrize(
    ("verb", "phase"), [("stop", Phase.STOPPING), ("delete", Phase.DELETING)], ids=["stop", "delete"]
)
def test_a_verb_acts_once_and_is_audited(
    client_of: Clients, workload: Workload, alice: User, verb: str, phase: str
) -> None:
    answer = client_of(alice).post(address(workload, f"{verb}/"))
    assert answer.status_code == 302
    workload.refresh_from_db()
    assert workload.phase == phase
    assert AuditRecord.objects.filter(action=f"workload.{verb}", actor_name="alice", channel="ui").count() == 1


def test_stopping_can_be_taken_back(client_of: Clients, workload: Workload, alice: User) -> None:
    client = client_of(alice)
    client.post(address(workload, "stop/"))
    assert "Resume" in page(client, address(workload))
    client.post(address(workload, "resume/"))
    workload.refresh_from_db()
    assert workload.phase == Phase.RESUMING


def test_one_that_failed_to_apply_says_why_and_is_retried(client_of: Clients, llm_team: Project, alice: User) -> None:
    refused = WorkloadFactory.create(project=llm_team, failed_to_apply=True)
    note(
        workload=refused, at=timezone.now(), type_=EventType.PHASE, detail={"pointer": "/spec/template/spec/volumes/0"}
    )
    client = client_of(alice)
    text = page(client, address(refused))
    assert REFUSAL in text
    assert "<code>/spec/template/spec/volumes/0</code>" in text
    assert f'action="{address(refused, "retry/")}"' in text
    client.post(address(refused, "retry/"))
    refused.refresh_from_db()
    assert refused.phase == Phase.CREATING
    assert f'action="{address(refused, "retry/")}"' not in page(client, address(refused))


def test_stopping_what_has_ended_says_that_it_has(client_of: Clients, workload: Workload, alice: User) -> None:
    Workload.objects.update(phase=Phase.COMPLETED, completed_at=timezone.now())
    answer = client_of(alice).post(address(workload, "stop/"), follow=True)
    assert "llm-finetune has already ended." in answer.content.decode()


@pytest.mark.parametrize("verb", ["stop", "resume", "retry", "delete", "priority"])
def test_t53_verbs_on_a_foreign_workload_find_nothing(
    client_of: Clients, workload: Workload, charlie: User, verb: str
) -> None:
    answer = client_of(charlie).post(address(workload, f"{verb}/"), {"priority": "high"})
    assert answer.status_code == 404
    before = workload.generation
    workload.refresh_from_db()
    assert workload.generation == before


def test_t53_a_foreign_workload_cannot_be_cloned(client_of: Clients, workload: Workload, charlie: User) -> None:
    assert client_of(charlie).get(f"/workloads/submit/yaml/?clone={workload.pk}").status_code == 404


def test_a_member_may_not_end_another_ones_work(client_of: Clients, workload: Workload, bob: User) -> None:
    client = client_of(bob)
    assert f'action="{address(workload, "delete/")}"' not in page(client, address(workload))
    assert client.post(address(workload, "delete/")).status_code == 403
    workload.refresh_from_db()
    assert workload.phase == Phase.RUNNING


def test_another_priority_leaves_the_preemptibility(client_of: Clients, workload: Workload, alice: User) -> None:
    client = client_of(alice)
    client.post(address(workload, "priority/"), {"priority": "high"})
    workload.refresh_from_db()
    assert (workload.priority.name, workload.preemptibility) == ("high", "preemptible")
    assert "Preemptibility stays preemptible, although high (125) alone means non-preemptible." in page(
        client, address(workload)
    )


def test_an_unknown_priority_is_refused_with_the_allowed_ones(
    client_of: Clients, workload: Workload, alice: User
) -> None:
    answer = client_of(alice).post(address(workload, "priority/"), {"priority": "urgent"})
    assert answer.status_code == 422
    assert "very-high" in answer.content.decode()


def test_t52_a_verb_takes_nothing_but_its_own_field(client_of: Clients, workload: Workload, alice: User) -> None:
    more = {"project": "vision-team", "preemptibility": "non-preemptible", "submitted_by": "bob", "phase": "Completed"}
    client_of(alice).post(address(workload, "priority/"), {"priority": "medium", **more})
    workload.refresh_from_db()
    assert (workload.project.name, workload.preemptibility) == ("llm-team", "preemptible")
    assert (workload.submitted_by, workload.phase) == ("alice", Phase.RUNNING)


def test_a_refusal_that_htmx_meets_is_a_message(client_of: Clients, workload: Workload, alice: User) -> None:
    Workload.objects.update(phase=Phase.COMPLETED)
    headers = {"HX-Request": "true"}
    answer = client_of(alice).post(address(workload, "resume/"), headers=headers)
    assert answer.status_code == 409
    assert answer["HX-Retarget"] == "#messages"
    assert "cannot be resumed" in answer.content.decode()
    assert "<html" not in answer.content.decode()


def test_an_eviction_reads_as_a_story_which_is_true_for_every_reader(
    client_of: Clients, workload: Workload, llm_team: Project, alice: User, admin: User
) -> None:
    other = WorkloadFactory(project=llm_team, name="llm-pretrain")
    _evict(workload, by=other)
    for reader in (alice, admin):
        text = page(client_of(reader), address(workload))
        assert "by llm-pretrain (very-high 150) of the same project" in text
        assert "your project" not in text
        assert "SIGTERM" in text


def test_an_eviction_by_another_project_names_nobody(
    client_of: Clients, workload: Workload, vision_team: Project, alice: User
) -> None:
    _evict(workload, by=WorkloadFactory(project=vision_team, name="segment"))
    text = page(client_of(alice), address(workload))
    assert "another project" in text
    assert "segment" not in text


def _evict(victim: Workload, *, by: Workload) -> None:
    PreemptionRecord.objects.create(
        cluster=victim.project.cluster,
        pod_uid="uid",
        pod_name="llm-finetune-0",
        at=timezone.now(),
        victim=victim,
        preemptor=by,
        preemptor_name=by.name,
        preemptor_priority="very-high",
        preemptor_value=150,
        preemptor_project=by.project.name,
        cause=PreemptionCause.PREEMPT,
        message=f"preempted by higher priority workload {by.project.namespace}/{by.name}",
        gpu_milli=2000,
        ran_seconds=600,
    )


@pytest.mark.parametrize("tab", TABS)
def test_t57_what_a_cluster_says_is_text(client_of: Clients, workload: Workload, alice: User, tab: str) -> None:
    now = timezone.now()
    ObservedPod.objects.update(
        reason=EVIL[:90], message=EVIL, disruption_reason="X", disruption_message=EVIL, node_name=EVIL
    )
    ClusterEvent.objects.create(
        cluster=workload.project.cluster,
        uid="event",
        namespace="runai-llm-team",
        owner_id=str(workload.pk),
        kind="Pod",
        name=EVIL,
        reason=EVIL[:90],
        message=EVIL,
        at=now,
    )
    Workload.objects.update(
        raw={"text": EVIL}, warnings=[{"message": EVIL}], discarded=[{"value": EVIL, "source": EVIL}]
    )
    workload.timeline.create(at=now, type="sync", message=EVIL, actor=EVIL[:90])
    text = page(client_of(alice), address(workload, f"?tab={tab}"))
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert 'href="javascript:' not in text
    assert '<a href="javascript' not in text
    if tab != "logs":
        assert "&lt;script&gt;alert(1)" in text


def test_a_live_workload_refreshes_itself_and_an_ended_one_rests(
    client_of: Clients, workload: Workload, alice: User
) -> None:
    client = client_of(alice)
    assert "every 5s" in page(client, address(workload))
    Workload.objects.update(phase=Phase.COMPLETED)
    assert "every 5s" not in page(client, address(workload))


@pytest.mark.parametrize("tab", ["overview", "pods", "events"])
def test_many_pods_cost_no_more_queries(client_of: Clients, workload: Workload, alice: User, tab: str) -> None:
    client = client_of(alice)
    counts = []
    for more in (1, 10):
        ObservedPodFactory.create_batch(more, workload=workload)
        with CaptureQueriesContext(connection) as queries:
            client.get(address(workload, f"?tab={tab}"))
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_what_its_scheduler_does_not_keep_is_told_beside_its_priority(
    client_of: Clients, workload: Workload, alice: User
) -> None:
    text = page(client_of(alice), address(workload))
    assert "counts against the deserved quota" not in text
    Cluster.objects.update(flavour="kube")
    Workload.objects.update(priority_value=125, preemptibility="preemptible")
    assert "counts against the deserved quota" in page(client_of(alice), address(workload))


def test_before_a_priority_is_changed_its_page_says_when_pods_get_it(
    client_of: Clients, workload: Workload, alice: User
) -> None:
    assert "Takes effect when the workload restarts" in page(client_of(alice), address(workload))


@pytest.mark.parametrize(("flavour", "by_class"), [("kai", True), ("kube", False)])
def test_a_pod_with_an_old_number_says_so_and_whether_its_scheduler_goes_by_it(
    client_of: Clients, workload: Workload, alice: User, flavour: str, by_class: bool
) -> None:
    Cluster.objects.update(flavour=flavour)
    ObservedPodFactory(workload=workload, priority=workload.priority_value + 1)
    text = page(client_of(alice), f"{address(workload)}?tab=pods")
    assert "old value" in text
    assert ("KAI Scheduler uses the value of the class instead." in text) is by_class


def test_a_terminating_pod_is_shown_with_the_end_of_its_grace_period(
    client_of: Clients, workload: Workload, alice: User
) -> None:
    until = timezone.now() + timedelta(seconds=30)
    ObservedPodFactory(workload=workload, phase="Running", deletion_at=until)
    text = page(client_of(alice), f"{address(workload)}?tab=pods")
    assert f"Terminating (grace period until {until:%H:%M:%S} UTC)" in text


def test_a_log_beyond_the_cap_is_asked_for_later_and_its_cluster_not_at_all(
    client_of: Clients, workload: Workload, alice: User
) -> None:
    ObservedPodFactory(workload=workload)
    client, cluster = client_of(alice), workload.project.cluster_id
    with ExitStack() as readers:
        while readers.enter_context(READERS.turn(cluster)):
            pass
        assert MANY_READ in page(client, address(workload, "?tab=logs"))
    assert MANY_READ not in page(client, address(workload, "?tab=logs"))
