"""Sync runs and drift list objects of visible projects only, and count the rest."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.sync.models import Drift, SyncOutcome, SyncRun
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
FOREIGN = "rung-vision-team"


@pytest.fixture
def run(cluster: Cluster, llm_team: Project, vision_team: Project) -> SyncRun:
    """A failed run about two projects, with an object and a difference of each and of a priority."""
    now, scope = timezone.now(), f"{llm_team.owner}\n{vision_team.owner}"
    run = SyncRun.objects.create(
        cluster=cluster,
        state="partial",
        started_at=now,
        heartbeat_at=now,
        scope=scope,
        error_code="forbidden",
        error=f'namespaces "{FOREIGN}" is forbidden',
    )
    named = {"queue-of-llm": llm_team.owner, "queue-of-vision": vision_team.owner, "class-of-all": "priority.1"}
    for name, owner in named.items():
        SyncOutcome.objects.create(run=run, action="update", kind="Queue", name=name, owner=owner, ok=True)
        Drift.objects.create(cluster=cluster, category="changed", kind="Queue", name=name, owner=owner, seen_at=now)
    return run


def seen(client: Client, run: SyncRun) -> str:
    pages = ("?tab=sync", "?tab=drift", f"runs/{run.pk}/")
    answers = [client.get(f"/clusters/{run.cluster.name}/{page}") for page in pages]
    assert {answer.status_code for answer in answers} == {200}
    return " ".join(" ".join(answer.content.decode() for answer in answers).split())


def test_pages_list_only_objects_of_visible_projects_and_count_the_rest(
    client_of: Clients, alice: User, run: SyncRun, vision_team: Project
) -> None:
    text = seen(client_of(alice), run)
    assert "queue-of-llm" in text
    assert "class-of-all" in text
    assert not [word for word in ("queue-of-vision", FOREIGN, vision_team.owner) if word in text]
    assert text.count("1 object of projects that you cannot see is not listed.") == 3
    assert "The run failed (forbidden)." in text


def test_a_platform_admin_sees_all_of_it(client_of: Clients, admin: User, run: SyncRun) -> None:
    text = seen(client_of(admin), run)
    assert "queue-of-vision" in text
    assert FOREIGN in text
    assert "not listed" not in text


def test_a_foreign_difference_is_absent(client_of: Clients, alice: User, admin: User, run: SyncRun) -> None:
    path = f"/clusters/{run.cluster.name}/difference/?kind=Queue&namespace=&name="
    assert client_of(alice).get(f"{path}queue-of-vision").status_code == 404
    assert client_of(alice).get(f"{path}queue-of-llm").status_code == 200
    assert client_of(admin).get(f"{path}queue-of-vision").status_code == 200


def test_rest_lists_only_objects_of_visible_projects_and_counts_the_rest(
    run: SyncRun, llm_team: Project, member: Robot
) -> None:
    answers: dict[str, Any] = {
        part: member.get(f"v1/clusters/{run.cluster_id}/{part}").json() for part in ("syncs", "differences")
    }
    (sync,) = answers["syncs"]["syncs"]
    assert ([each["name"] for each in sync["objects"]], sync["hidden"]) == (["queue-of-llm", "class-of-all"], 1)
    assert (sync["owners"], sync["code"], sync["message"]) == ([llm_team.owner], "forbidden", "")
    named = sorted(each["name"] for each in answers["differences"]["differences"])
    assert (named, answers["differences"]["hidden"]) == (["class-of-all", "queue-of-llm"], 1)
