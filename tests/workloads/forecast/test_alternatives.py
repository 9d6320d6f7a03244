"""A workload that waits is offered what its preview would offer, each as one act on this very workload."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.watch.models import ObservedPod
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM, Actor
from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.snapshot import PodGroup, Snapshot
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tenants.quotas.models import PriorityCap
from tests.factories.cast import acting
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, MembershipFactory, ProjectFactory, ProjectQuotaFactory, UserFactory
from tests.factories.workloads import job
from tests.support.rest_clients import Robot
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.forecast import Alternative
from workloads.forecast.selectors import alternatives
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.lifecycle.services.actions import stop
from workloads.state.models import Phase, Workload
from workloads.submission.services import replace_waiting

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


@pytest.fixture(autouse=True)
def registries(settings: Settings) -> None:
    """Where the images of these workloads come from."""
    settings.RUNG_IMAGE_REGISTRIES = ["registry.example"]


@pytest.fixture
def admin() -> User:
    found: User = UserFactory(is_superuser=True)
    return found


def asking(name: str, *, gpus: int = 1, cpu: str = "1") -> dict[str, Any]:
    manifest = job(name, gpus=gpus)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"] = {"cpu": cpu, "memory": "1Gi"}
    return manifest


def waiting(
    *, ahead: dict[str, Any], mine: dict[str, Any], flavour: str = "kai", preemptibility: str = "preemptible"
) -> tuple[Lab, Project, Workload]:
    """One node of 8 GPUs and 128 CPUs, on which the first runs and the second waits. The project deserves 4 GPUs."""
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=4)
    lab.submit(team, "ahead", manifest=asking("ahead", **ahead), priority="medium", preemptibility=preemptibility)
    lab.settle()
    made = lab.submit(team, "mine", manifest=asking("mine", **mine), priority="low", preemptibility=preemptibility)
    lab.settle()
    assert fresh(made).phase == Phase.PENDING
    return lab, team, fresh(made)


def offered(workload: Workload, actor: Actor) -> list[str]:
    return [each.words for each in waiting_alternatives(workload=fresh(workload), actor=actor)]


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_a_stronger_priority_is_offered_with_its_victims_and_works(
    flavour: str, admin: User, client_of: Clients
) -> None:
    lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8}, flavour=flavour)
    [words] = [each for each in offered(mine, acting(admin)) if each.startswith("Choose")]
    assert words.startswith("Choose medium-high (90): it starts after evicting ahead (8 GPUs), ")
    page = client_of(admin).get(f"/workloads/{mine.pk}/").content.decode()
    assert words.rpartition(", ")[0] in page, "what is at risk grows with every second"
    assert f'action="/workloads/{mine.pk}/priority/"' in page
    assert '<input type="hidden" name="sure" value="yes">' in page, "its words name the victims"
    client_of(admin).post(f"/workloads/{mine.pk}/priority/", {"priority": "medium-high", "sure": "yes"})
    for _round in range(4):
        Workload.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        lab.settle(2, seconds=40)
    assert (fresh(mine).phase, fresh(mine).priority.name) == (Phase.RUNNING, "medium-high")


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_a_priority_that_evicts_at_once_is_confirmed_with_its_victims(
    flavour: str, admin: User, client_of: Clients
) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8}, flavour=flavour)
    address, browser = f"/workloads/{mine.pk}/", client_of(admin)
    assert "No pod of it runs, so the change takes effect immediately" in browser.get(address).content.decode()
    requested = browser.post(f"{address}priority/", {"priority": "medium-high"}).content.decode()
    assert "Estimate: with medium-high (90) it starts after evicting ahead (8 GPUs), " in requested
    assert fresh(mine).priority.name == "low", "nothing is changed before it is confirmed"
    browser.post(f"{address}priority/", {"priority": "medium-high", "sure": "yes"})
    assert fresh(mine).priority.name == "medium-high"


def test_a_priority_that_evicts_nothing_is_changed_without_a_question(admin: User, client_of: Clients) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    client_of(admin).post(f"/workloads/{mine.pk}/priority/", {"priority": "very-low"})
    assert fresh(mine).priority.name == "very-low"


def test_a_dry_run_of_another_priority_names_whom_it_would_evict(admin: User) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    robot, address = Robot("admin", role=Role.PLATFORM_ADMIN), f"v2/workloads/{mine.pk}?dryRun=true"
    found = robot.send("put", address, {"metadata": {"priority": "medium-high"}}).json()["priorityForecast"]
    assert found["sentence"].startswith("No pod of it runs, so the change takes effect immediately")
    assert "it starts after evicting ahead (8 GPUs), " in found["sentence"]
    assert [each["name"] for each in found["victims"]] == ["ahead"]
    lower = robot.send("put", address, {"metadata": {"priority": "very-low"}}).json()["priorityForecast"]
    assert "with very-low (25) it needs 8 GPUs" in lower["sentence"]
    assert lower["victims"] == []
    assert fresh(mine).priority.name == "low"


def test_another_priority_of_a_stopped_workload_waits_for_its_resume(admin: User, client_of: Clients) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    stop(workload=mine, actor=acting(admin))
    address, browser = f"/workloads/{mine.pk}/", client_of(admin)
    assert "Takes effect when you resume the workload." in browser.get(address).content.decode()
    browser.post(f"{address}priority/", {"priority": "medium-high"})
    assert fresh(mine).priority.name == "medium-high"


def test_the_lowest_priority_that_helps_is_offered_though_the_highest_are_capped(admin: User) -> None:
    _lab, team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    for name in ("very-high", "high"):
        PriorityCap.objects.create(project=team, priority=name, gpu_limit=GPU)
    [words] = [each for each in offered(mine, acting(admin)) if each.startswith("Choose")]
    assert words.startswith("Choose medium-high (90)")


def test_where_the_highest_priority_of_its_kind_does_not_help_no_other_is_tried(admin: User) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    ObservedPod.objects.update(preemptible=False)
    tried: list[int] = []

    def noted(snapshot: Snapshot, *groups: PodGroup, flavour: str) -> Outcome:
        tried.append(groups[0].priority)
        return preview(snapshot, *groups, flavour=flavour)

    with patch.object(alternatives, "preview", noted):
        assert not [each for each in offered(mine, acting(admin)) if each.startswith("Choose")]
    higher = [each for each in tried if each > mine.priority.value]
    assert higher == [90, max(tried)], "those from 100 on are another kind: not preemptible by default"


def test_rest_names_what_the_page_offers_to_who_may_change_it(admin: User) -> None:
    _lab, team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    ways = waiting_alternatives(workload=mine, actor=acting(admin))
    address = f"v1/workloads/{mine.pk}/alternatives"
    said = Robot("admin", role=Role.PLATFORM_ADMIN).get(address).json()
    assert [each["words"] for each in said["alternatives"]] == [each.words for each in ways]
    [stronger] = [each for each in said["alternatives"] if each.get("priority") == "medium-high"]
    assert stronger["preemptibility"] == "preemptible"
    assert (said["scheduler"], said["simulated"]) == ("KAI Scheduler", True)
    assert said["snapshotAgeSeconds"] < 60
    assert Robot("member", role=Role.MEMBER, project=team).get(address).json()["alternatives"] == []
    assert Robot("guest", role=Role.MEMBER, project=ProjectFactory()).get(address).status_code == 404


def test_less_of_what_is_short_takes_its_place_and_starts(admin: User, client_of: Clients) -> None:
    lab, _team, mine = waiting(ahead={"cpu": "100"}, mine={"gpus": 2, "cpu": "64"})
    assert "Request 28 CPUs per pod instead of 64: it starts now." in offered(mine, acting(admin))
    answer = client_of(admin).post(f"/workloads/{mine.pk}/way-out/", {"cpu": "28"})
    made = Workload.objects.get(name__startswith="mine-")
    assert answer.headers["Location"] == f"/workloads/{made.pk}/"
    assert (made.cpu_milli, made.gpu_milli, made.priority.name, made.preemptibility) == (
        28_000,
        2000,
        "low",
        "preemptible",
    )
    assert fresh(mine).desired_phase == "Deleted"
    assert mine.timeline.filter(reason="ReplacedBy", message=f"Replaced by {made.name}.").exists()
    assert {"workload.submit", "workload.delete"} <= set(AuditRecord.objects.values_list("action", flat=True))
    lab.settle(4)
    assert fresh(made).phase == Phase.RUNNING


def test_another_pool_takes_its_place_there(admin: User, client_of: Clients) -> None:
    lab, team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 4})
    other = NodePoolFactory(cluster=lab.cluster, name="a100")
    ProjectQuotaFactory(project=team, node_pool=other, gpu_deserved=8 * GPU)
    lab.node("a100-0", **{"rung.dev/node-pool": "a100"})
    lab.settle()
    assert "Use node pool a100: it starts now." in offered(mine, acting(admin))
    client_of(admin).post(f"/workloads/{mine.pk}/way-out/", {"node_pool": "a100"})
    assert Workload.objects.get(name__startswith="mine-").pool_name == "a100"


def test_preemptible_takes_its_place(admin: User, client_of: Clients) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 4}, mine={"gpus": 4}, preemptibility="non-preemptible")
    assert "Make it preemptible: it starts now and may be evicted." in offered(mine, acting(admin))
    client_of(admin).post(f"/workloads/{mine.pk}/way-out/", {"preemptibility": "preemptible"})
    assert Workload.objects.get(name__startswith="mine-").preemptibility == "preemptible"


def test_what_was_a_default_is_a_default_of_what_takes_its_place(admin: User, client_of: Clients) -> None:
    lab, team, _mine = waiting(ahead={"gpus": 8}, mine={"gpus": 2})
    mine = lab.submit(team, "default", gpus=2)
    lab.settle()
    sources = (mine.priority_source, mine.preemptibility_source)
    assert "explicit" not in sources
    client_of(admin).post(f"/workloads/{mine.pk}/way-out/", {"gpus": "1"})
    made = Workload.objects.get(name__startswith="default-")
    assert (made.priority_source, made.preemptibility_source) == sources
    assert (made.priority, made.preemptibility, made.gpu_milli) == (mine.priority, mine.preemptibility, GPU)


def test_nothing_is_offered_to_who_may_not_change_it() -> None:
    _lab, team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    assert offered(mine, SYSTEM)
    assert offered(mine, acting(MembershipFactory(project=team).user)) == []


def test_what_no_longer_waits_is_not_replaced(admin: User) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    Workload.objects.filter(pk=mine.pk).update(phase=Phase.RUNNING, running_pods=1)
    with pytest.raises(Conflict, match="no longer waiting"):
        replace_waiting(workload=fresh(mine), way=Alternative("", gpus_per_pod=4), actor=acting(admin))
    assert not Workload.objects.filter(name__startswith="mine-").exists()


def test_a_way_that_changes_nothing_is_400(admin: User, client_of: Clients) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    client = client_of(admin)
    assert client.post(f"/workloads/{mine.pk}/way-out/", {}).status_code == 400
    assert client.post(f"/workloads/{mine.pk}/way-out/", {"gpus": "many"}).status_code == 400
    assert client.post(f"/workloads/{mine.pk}/way-out/", {"node_pool": "typo"}).status_code == 422


def test_the_button_has_its_texts_to_copy(admin: User, client_of: Clients) -> None:
    _lab, _team, mine = waiting(ahead={"gpus": 8}, mine={"gpus": 8})
    address = f"/workloads/{mine.pk}/way-out/"
    text = client_of(admin).post(address, {"gpus": "4"}, headers={"HX-Target": "act-copies"}).content.decode()
    assert "/api/v2/workloads" in text
    assert "/api/v1/workloads/batch" in text
    assert not Workload.objects.filter(name__startswith="mine-").exists()
