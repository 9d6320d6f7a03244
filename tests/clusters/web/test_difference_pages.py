"""One difference is shown whole, then repaired or taken over by whoever may; a run is read object by object."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster, DirtyOwner
from clusters.sync.models import Adoption, Drift, SyncOutcome, SyncRun
from portal.audit.models import AuditRecord
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.clusters.web.test_cluster_pages import words

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
QUEUE = "/clusters/lab/difference/?kind=Queue.scheduling.run.ai&namespace=&name=a"


@pytest.fixture
def drift(cluster: Cluster) -> Drift:
    """A queue whose limit was edited by hand."""
    return Drift.objects.create(
        cluster=cluster,
        category="changed",
        kind="Queue.scheduling.run.ai",
        name="a",
        owner="project.1",
        message="Differs: /spec/x",
        changes=[["/spec/x", 99, 24]],
        seen_at=timezone.now(),
    )


@pytest.fixture
def foreign(drift: Drift) -> Drift:
    """The same name in somebody else's hands."""
    drift.category, drift.object_uid = "conflict", "u-1"
    drift.save()
    return drift


def test_a_difference_leads_to_its_repair(client_of: Clients, admin: User, drift: Drift) -> None:
    client = client_of(admin)
    assert "Repair…" in words(client, "/clusters/lab/?tab=drift")
    text = words(client, QUEUE)
    assert "99</pre>" in text
    assert "Repair" in text
    assert client.post(QUEUE, {"act": "repair"})["Location"] == "/clusters/lab/?tab=drift"
    assert DirtyOwner.objects.filter(owner="project.1").exists()
    assert AuditRecord.objects.filter(action="cluster.repair", actor_name="admin").exists()
    assert "The next sync run repairs a." in words(client, "/clusters/lab/")


def test_a_foreign_object_is_taken_over_after_its_difference_was_seen(
    client_of: Clients, admin: User, foreign: Drift
) -> None:
    client = client_of(admin)
    assert "Take over object…" in words(client, "/clusters/lab/?tab=drift")
    assert 'name="uid" value="u-1"' in words(client, QUEUE)
    assert client.post(QUEUE, {"act": "adopt", "uid": "another"}).status_code == 409
    assert client.post(QUEUE, {"act": "adopt", "uid": "u-1"}).status_code == 302
    assert Adoption.objects.get().uid == "u-1"


def test_others_see_the_difference_and_may_do_nothing(
    client_of: Clients, alice: User, llm_team: Project, foreign: Drift
) -> None:
    Drift.objects.update(owner=llm_team.owner)
    client = client_of(alice)
    assert "Take over" not in words(client, QUEUE)
    assert "Take this" not in words(client, "/clusters/lab/?tab=drift")
    for act in ("adopt", "repair"):
        assert client.post(QUEUE, {"act": act, "uid": "u-1"}).status_code == 403
    assert client.post("/clusters/lab/dry-run/").status_code == 403
    assert not Adoption.objects.exists()


def test_what_is_right_by_now_is_absent(client_of: Clients, admin: User, drift: Drift) -> None:
    drift.delete()
    assert client_of(admin).get(QUEUE).status_code == 404


def test_t57_names_from_the_cluster_are_text(client_of: Clients, admin: User, drift: Drift) -> None:
    evil = "<script>alert(1)</script>"
    Drift.objects.update(name=evil, message=evil, changes=[[evil, evil, evil]], object_uid="u", category="conflict")
    answer = client_of(admin).get("/clusters/lab/difference/", {"kind": drift.kind, "namespace": "", "name": evil})
    assert answer.status_code == 200
    assert "<script>alert" not in answer.content.decode()


def test_a_dry_run_is_asked_for(client_of: Clients, admin: User, cluster: Cluster) -> None:
    assert client_of(admin).post("/clusters/lab/dry-run/").status_code == 302
    assert AuditRecord.objects.filter(action="cluster.dry_run").exists()


def test_long_lists_come_in_pages(client_of: Clients, alice: User, cluster: Cluster) -> None:
    now = timezone.now()
    Drift.objects.bulk_create(
        Drift(cluster=cluster, category="missing", kind="Queue", name=f"q{number:03}", owner="priority.1", seen_at=now)
        for number in range(60)
    )
    client = client_of(alice)
    first = client.get("/clusters/lab/?tab=drift")
    assert first.content.decode().count(">q0") == 50
    following = client.get(f"/clusters/lab/?tab=drift&after={first.context['drifts'].next}")
    assert following.content.decode().count(">q0") == 10


def test_a_run_of_thousands_is_read_page_by_page(client_of: Clients, alice: User, cluster: Cluster) -> None:
    now = timezone.now()
    run = SyncRun.objects.create(cluster=cluster, dry_run=True, started_at=now, heartbeat_at=now, scope="priority.7")
    SyncOutcome.objects.bulk_create(
        SyncOutcome(run=run, action="create", kind="Queue", name=f"q{number:03}", owner="priority.1", ok=number != 140)
        for number in range(150)
    )
    client = client_of(alice)
    text = words(client, "/clusters/lab/?tab=sync")
    assert "q140" in text  # what failed comes first
    assert "q030" not in text
    first = client.get(f"/clusters/lab/runs/{run.pk}/")
    assert "planned" in first.content.decode()
    assert "priority.7" in first.content.decode()
    following = client.get(f"/clusters/lab/runs/{run.pk}/?after={first.context['page'].next}")
    assert following.content.decode().count('class="mono">q') == 50
    assert client.get(f"/clusters/other/runs/{run.pk}/").status_code == 404


def test_a_cluster_that_fails_says_when_it_is_tried_again(client_of: Clients, alice: User, cluster: Cluster) -> None:
    Cluster.objects.update(failures=4, sync_due_at=timezone.now())
    assert "The last 4 sync runs failed." in words(client_of(alice), "/clusters/lab/")


def test_a_paused_cluster_offers_nothing_and_says_where_it_goes_on(
    client_of: Clients, admin: User, alice: User, drift: Drift
) -> None:
    Cluster.objects.update(state="paused", paused_reason="Paused by admin.")
    client = client_of(admin)
    text = words(client, QUEUE)
    assert "Repair" not in text
    assert "Paused by admin." in text
    assert "/clusters/lab/connection/" in text
    for address, sent in ((QUEUE, {"act": "repair"}), ("/clusters/lab/dry-run/", {}), ("/clusters/lab/reconcile/", {})):
        refused = client.post(address, sent)
        assert refused.status_code == 409
        assert "Resume it on its Connection page" in refused.content.decode()
    assert "/clusters/lab/connection/" not in words(client_of(alice), "/clusters/lab/")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("running", "No changes so far."),
        ("failed", "The run failed before it reached any object."),
        ("succeeded", "No changes needed."),
    ],
)
def test_a_run_without_objects_says_why(
    state: str, said: str, client_of: Clients, alice: User, cluster: Cluster
) -> None:
    now = timezone.now()
    run = SyncRun.objects.create(cluster=cluster, state=state, started_at=now, heartbeat_at=now)
    assert said in words(client_of(alice), "/clusters/lab/?tab=sync")
    assert said in words(client_of(alice), f"/clusters/lab/runs/{run.pk}/")


def test_a_dry_run_that_found_a_conflict_has_not_failed(client_of: Clients, alice: User, cluster: Cluster) -> None:
    now = timezone.now()
    run = SyncRun.objects.create(
        cluster=cluster, dry_run=True, state="failed", failed=1, listed=3, started_at=now, heartbeat_at=now
    )
    SyncOutcome.objects.create(
        run=run, action="conflict", kind="Queue", name="q", owner="priority.1", ok=False, code="object_conflict"
    )
    text = words(client_of(alice), f"/clusters/lab/runs/{run.pk}/")
    assert "1 would be rejected" in text
    assert "Failed" not in text


def test_nothing_is_called_equal_before_it_was_compared(client_of: Clients, alice: User, cluster: Cluster) -> None:
    client = client_of(alice)
    assert "Not compared yet: no sync run has finished." in words(client, "/clusters/lab/?tab=drift")
    Cluster.objects.update(synced_at=timezone.now() - timedelta(seconds=20), synced_generation=1)
    text = words(client, "/clusters/lab/?tab=drift")
    assert "No drift at the last check. Configuration up to date, compared <time" in text
    assert ">20 s ago</time>" in text


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"state": "paused"}, "The cluster is paused.", id="paused"),
        pytest.param({"breaker_reason": "401"}, "The cluster does not accept work now.", id="its work is stopped"),
        pytest.param({"failures": 3}, "The last sync run failed.", id="runs fail"),
        pytest.param({"observed_at": None}, "No sync run has finished since.", id="nothing looks"),
    ],
)
def test_nothing_is_called_equal_while_nothing_looks(
    client_of: Clients, alice: User, cluster: Cluster, fields: dict[str, object], why: str
) -> None:
    at = timezone.now() - timedelta(hours=3)
    Cluster.objects.update(**{"synced_at": at, "synced_generation": 1, **fields})
    for path in ("/clusters/lab/?tab=drift", "/clusters/lab/", "/clusters/", "/priorities/"):
        text = words(client_of(alice), path)
        assert "up to date" not in text, path
        assert "synced" not in text, path
        assert "3 h ago" in text, path
    assert f"Sync state unknown. {why}" in words(client_of(alice), "/clusters/lab/?tab=drift")


def test_a_pod_with_an_old_number_is_told_how_it_gets_the_new_one(
    client_of: Clients, admin: User, drift: Drift
) -> None:
    Drift.objects.update(category="stale", kind="Pod")
    text = words(client_of(admin), "/clusters/lab/?tab=drift")
    assert "Stop and resume the workload" in text
    assert "Repair this" not in text
