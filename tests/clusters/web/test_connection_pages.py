"""The pages that connect, change, pause and leave a cluster: who may, what they say, and what they never do."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.connection.models import ClusterCredential
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import ClusterError
from clusters.sync.models import SyncRun
from clusters.sync.services.reconcile import reconcile
from portal.audit.models import AuditRecord
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.clusters.connection.answering import SERVER, Answering, entered
from tests.clusters.connection.kubeconfigs import TOKEN, kubeconfig, text
from tests.factories.cast import applied
from tests.factories.clusters import NodeFactory

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
PARTS = {"name": "real", "flavour": "kube", "way": "parts", "server": SERVER, "ca": "", "token": TOKEN}
PAGES = [
    ("get", "/connect-cluster/"),
    ("post", "/connect-cluster/"),
    ("get", "/connect-cluster/rights/kube.yaml"),
    ("get", "/clusters/lab/connection/"),
    ("post", "/clusters/lab/connection/"),
    ("post", "/clusters/lab/connection/test/"),
    ("post", "/clusters/lab/hold/"),
    ("get", "/clusters/lab/leave/"),
    ("post", "/clusters/lab/leave/"),
    ("get", "/clusters/lab/pools/"),
    ("post", "/clusters/lab/pools/"),
    ("get", "/clusters/lab/pools/h100/"),
    ("post", "/clusters/lab/pools/h100/"),
    ("post", "/clusters/lab/pools/h100/remove/"),
]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Whatever is connected answers without a network."""
    answering = Answering()
    for service in ("register_cluster", "change_connection", "try_entered", "try_stored"):
        defaults = getattr(__import__("clusters.connection.services.registration", fromlist=[service]), service)
        monkeypatch.setitem(defaults.__kwdefaults__, "opens", answering)
    return answering


def words(body: bytes) -> str:
    return " ".join(unescape(body.decode()).split())


@pytest.mark.parametrize(("method", "page"), PAGES)
def test_only_platform_admins_may_connect_clusters(
    client_of: Clients, alice: User, cluster: Cluster, answers: Answering, method: str, page: str
) -> None:
    assert getattr(client_of(alice), method)(page, {}).status_code == 403
    assert getattr(Client(), method)(page, {}).status_code == 302
    assert answers.opened == []


def test_an_absent_cluster_is_absent(client_of: Clients, admin: User) -> None:
    for page in ("connection", "leave", "pools"):
        assert client_of(admin).get(f"/clusters/none/{page}/").status_code == 404
    assert client_of(admin).get("/connect-cluster/rights/slurm.yaml").status_code == 404


def test_only_admins_see_the_link_to_connect_a_cluster(
    client_of: Clients, admin: User, alice: User, cluster: Cluster
) -> None:
    assert "Connect a cluster" in words(client_of(admin).get("/clusters/").content)
    assert "Connect a cluster" not in words(client_of(alice).get("/clusters/").content)
    assert "/clusters/lab/connection/" not in words(client_of(alice).get("/clusters/lab/").content)


def test_connecting_leads_to_the_connection(client_of: Clients, admin: User, answers: Answering) -> None:
    answer = client_of(admin).post("/connect-cluster/", PARTS, follow=True)
    assert answer.redirect_chain == [("/clusters/real/connection/", 302)]
    said = words(answer.content)
    assert "real connected. The first sync is running." in said
    assert SERVER in said
    assert AuditRecord.objects.get(action="cluster.connect").actor_name == "admin"


def test_a_pasted_kubeconfig_connects_too(client_of: Clients, admin: User, answers: Answering) -> None:
    pasted = {"name": "real", "flavour": "kube", "way": "kubeconfig", "kubeconfig": text(kubeconfig()).decode()}
    assert client_of(admin).post("/connect-cluster/", pasted).status_code == 302
    assert answers.opened[0].token == TOKEN


def test_a_test_stores_nothing_and_needs_no_name(client_of: Clients, admin: User, answers: Answering) -> None:
    answer = client_of(admin).post("/connect-cluster/", {**PARTS, "name": "", "act": "test"})
    said = words(answer.content)
    assert "Connected. The account has all required permissions." in said
    assert "v1.36.3" in said
    assert not Cluster.objects.exists()
    assert TOKEN not in said


def test_missing_rights_are_listed_with_what_to_apply(client_of: Clients, admin: User, answers: Answering) -> None:
    answers.forbidden = frozenset({("nodes", "watch"), ("events", "watch")})
    answer = client_of(admin).post("/connect-cluster/", PARTS, follow=True)
    assert "connected but paused" in words(answer.content)
    said = words(client_of(admin).post("/clusters/real/connection/test/").content)
    for resource in ("nodes", "events"):
        assert f'<strong>Missing:</strong> watch on <span class="mono text-break">{resource}</span>' in said
    assert "/connect-cluster/rights/kube.yaml" in said
    client_of(admin).post("/clusters/real/hold/")
    assert Cluster.objects.get().state == "active"


def test_what_is_refused_is_in_a_test_too(client_of: Clients, admin: User, answers: Answering) -> None:
    answer = client_of(admin).post("/connect-cluster/", {**PARTS, "server": "http://x", "act": "test"})
    assert answer.status_code == 422
    assert "https://host:port" in words(answer.content)
    assert answers.opened == []


def test_htmx_shows_why_a_kubeconfig_cannot_be_tested(client_of: Clients, admin: User, answers: Answering) -> None:
    sent = {"act": "test", "way": "kubeconfig", "kubeconfig": "abc: ["}
    answer = client_of(admin).post("/connect-cluster/", sent, headers={"HX-Request": "true", "HX-Target": "report"})
    assert (answer.status_code, answer["HX-Retarget"]) == (400, "#report")
    assert "Not YAML" in words(answer.content)


def test_insecure_is_offered_only_by_the_operator_and_shown_in_red(
    client_of: Clients, admin: User, answers: Answering, settings: Settings
) -> None:
    insecure = {**PARTS, "insecure": "on"}
    assert "insecure" not in client_of(admin).get("/connect-cluster/").content.decode()
    client_of(admin).post("/connect-cluster/", insecure)
    assert not ClusterCredential.objects.get().insecure
    Cluster.objects.all().delete()
    settings.RUNG_ALLOW_INSECURE_CLUSTERS = True
    answer = client_of(admin).post("/connect-cluster/", insecure, follow=True)
    assert ClusterCredential.objects.get().insecure
    assert "note note-bad\">The server's certificate is not verified" in words(answer.content)


def test_another_address_needs_the_secret_again(client_of: Clients, admin: User, answers: Answering) -> None:
    client_of(admin).post("/connect-cluster/", PARTS)
    answers.opened.clear()
    moved = {"way": "parts", "server": "https://elsewhere.example.org", "ca": "", "token": ""}
    answer = client_of(admin).post("/clusters/real/connection/", moved)
    assert answer.status_code == 422
    assert "Enter the credential again" in words(answer.content)
    assert answers.opened == []
    answer = client_of(admin).post("/clusters/real/connection/", {**moved, "token": "new"}, follow=True)
    assert "https://elsewhere.example.org:443" in words(answer.content)


def test_t47_what_a_cluster_says_is_shown_as_text(client_of: Clients, admin: User, answers: Answering) -> None:
    answers.uid = "<script>alert(1)</script>"
    answer = client_of(admin).post("/connect-cluster/", {**PARTS, "act": "test"})
    assert "<script>alert(1)" not in answer.content.decode()


def test_a_paused_cluster_can_be_resumed(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client_of(admin).post("/clusters/lab/hold/")
    cluster.refresh_from_db()
    assert (cluster.state, cluster.paused_reason) == ("paused", "Paused by admin.")
    client_of(admin).post("/clusters/lab/hold/")
    cluster.refresh_from_db()
    assert cluster.state == "active"


def test_a_credential_that_ends_soon_is_marked(client_of: Clients, admin: User, answers: Answering) -> None:
    client_of(admin).post("/connect-cluster/", PARTS)
    page = "/clusters/real/connection/"
    assert "replace soon" not in words(client_of(admin).get(page).content)
    ClusterCredential.objects.update(expires_at=timezone.now() + timedelta(days=3))
    assert "replace soon" in words(client_of(admin).get(page).content)


def test_another_cluster_at_the_address_is_taken_over_only_when_told(
    client_of: Clients, admin: User, cluster: Cluster
) -> None:
    Cluster.objects.update(uid="another")
    cluster.refresh_from_db()
    with suppress(ClusterError):
        reconcile(cluster)
    page = client_of(admin).get("/clusters/lab/connection/")
    assert "Adopt the cluster at this address" in words(page.content)
    client_of(admin).post("/clusters/lab/hold/", {"adopt": "yes"})
    cluster.refresh_from_db()
    assert (cluster.state, cluster.uid) == ("active", "")


def test_leaving_says_what_it_takes_along(client_of: Clients, admin: User, cluster: Cluster, llm_team: Project) -> None:
    said = words(client_of(admin).get("/clusters/lab/leave/").content)
    assert "Still in use by" in said
    assert "llm-team" in said
    answer = client_of(admin).post("/clusters/lab/leave/", {"confirm": "lab", "act": "forget"})
    assert answer.status_code == 422
    assert "still in use" in words(answer.content)
    assert Cluster.objects.filter(name="lab").exists()


def test_a_simulated_cluster_has_nothing_to_connect(client_of: Clients, admin: User, cluster: Cluster) -> None:
    assert "This cluster is simulated. It needs no connection and no credential." in words(
        client_of(admin).get("/clusters/lab/connection/").content
    )
    assert client_of(admin).post("/clusters/lab/connection/test/").status_code == 404


def test_pools_are_added_and_removed(client_of: Clients, admin: User, cluster: Cluster) -> None:
    wanted = {"name": "b200", "label_key": "rung.dev/node-pool", "label_value": "b200"}
    client = client_of(admin)
    applied(client, client.post("/clusters/lab/pools/", wanted))
    assert "rung.dev/node-pool=b200" in words(client_of(admin).get("/clusters/lab/pools/").content)
    assert client_of(admin).post("/clusters/lab/pools/", wanted).status_code == 422
    applied(client, client.post("/clusters/lab/pools/b200/remove/"))
    assert not NodePool.objects.filter(name="b200").exists()


def test_a_pools_label_and_topology_are_changed_and_its_levels_shown_as_its_nodes_carry_them(
    client_of: Clients, admin: User, cluster: Cluster, h100: NodePool
) -> None:
    Cluster.objects.update(flavour="kai")
    for number, labels in enumerate(({"rack": "r1"}, {"rack": "r2"}, {})):
        NodeFactory(cluster=cluster, pool=h100, name=f"racked-{number}", labels=labels)
    page, client = "/clusters/lab/pools/h100/", client_of(admin)
    wanted = {"label_key": "gpu", "label_value": "h100", "topology_levels": "zone\nrack\n"}
    applied(client, client.post(page, wanted))
    h100.refresh_from_db()
    assert (h100.label_key, h100.topology_levels, h100.is_default) == ("gpu", ["zone", "rack"], True)
    for where in (page, "/clusters/lab/pools/"):
        said = words(client.get(where).content)
        assert "zone</code> no node has this label yet" in said
        assert "rack</code> in 2 domains" in said
    answer = client.post(page, {**wanted, "topology_levels": "rack, rack, a b/c"})
    assert (answer.status_code, "Duplicate level rack." in words(answer.content)) == (422, True)
    h100.refresh_from_db()
    assert h100.topology_levels == ["zone", "rack"]
    answer = client.post(page, {**wanted, "topology_levels": "zone\r\nrack\r\n"})
    assert (answer.status_code, "Nothing was changed." in words(answer.content)) == (422, True)


def test_where_the_scheduler_knows_no_topology_nobody_is_asked_for_one(
    client_of: Clients, admin: User, cluster: Cluster, h100: NodePool
) -> None:
    Cluster.objects.update(flavour="kube")
    for page in ("/clusters/lab/pools/", "/clusters/lab/pools/h100/"):
        assert "Topology levels" not in words(client_of(admin).get(page).content)


def test_a_form_that_was_filled_names_no_secret() -> None:
    assert TOKEN not in repr(entered())


def test_the_page_of_a_disconnection_shows_progress_without_a_request_to_the_cluster(
    client_of: Clients, admin: User, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(admin)
    assert client.post("/clusters/lab/leave/", {"confirm": "lab", "act": "traces"}).status_code == 422
    client.post("/clusters/lab/hold/")
    assert client.post("/clusters/lab/leave/", {"confirm": "lab", "act": "traces"}).status_code == 302
    run = SyncRun.objects.get(trigger="removal")
    SyncRun.objects.update(listed=12, written=7)

    def requested(_cluster: Cluster) -> dict[str, int]:
        raise AssertionError("the page asked the cluster")

    monkeypatch.setattr("clusters.web.views.connection.managed_counts", requested)
    page = client.get("/clusters/lab/leave/")
    assert "12 objects found, 7 deleted" in words(page.content)
    assert b'hx-get="/clusters/lab/leave/?part=removal"' in page.content
    assert b'value="traces"' not in page.content
    SyncRun.objects.filter(pk=run.pk).update(state="succeeded", finished_at=timezone.now(), written=12)
    part = client.get("/clusters/lab/leave/?part=removal")
    assert "12 objects found, 12 deleted" in words(part.content)
    assert b"hx-get" not in part.content
    assert b"<html" not in part.content
