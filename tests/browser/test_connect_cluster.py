"""An admin connects a real cluster, sees what its account lacks, and leaves it again."""

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from clusters.connection.models import ClusterCredential
from clusters.connection.services.gateways import forget_gateways
from clusters.inventory.models import Cluster
from clusters.sync.services.disconnect import continue_removal
from clusters.sync.services.reconcile import reconcile
from tenants.access.models import User
from tests.browser.conftest import Visitor
from tests.support.lab import Kept, LabCluster, own_cluster


@pytest.fixture(autouse=True)
def _no_client_is_kept() -> Iterator[None]:
    yield
    forget_gateways()


@pytest.fixture
def lab(kept: Kept) -> LabCluster:
    """One that only these tests use: they delete whatever carries Rung's label."""
    return kept.cluster(own_cluster)


def clean(page: Page) -> None:
    """No axe finding and no sideways scroll."""
    found = [f"{each['id']} {each['nodes'][0]['html'][:150]}" for each in Axe().run(page).response["violations"]]
    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


@pytest.mark.parametrize(("theme", "size"), [("light", "wide"), ("dark", "narrow")])
def test_from_the_first_test_to_the_last_trace(
    visit: Visitor,
    admin: User,
    lab: LabCluster,
    unique: Callable[[str], str],
    theme: str,
    size: str,
) -> None:
    window = visit(admin, theme=theme, size=size)
    page = window.open("/clusters/")
    page.get_by_role("link", name="Connect a cluster").click()
    page.get_by_label("Server, certificate authority and token").check()
    expect(page.get_by_label("Kubeconfig", exact=True)).to_be_hidden()
    page.get_by_label("Server", exact=True).fill(lab.server)
    page.get_by_label("Authority", exact=True).fill(lab.ca)
    page.get_by_label("Token", exact=True).fill(_weak_token(lab, unique("weak")))
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("#report")).to_contain_text("may not read the namespace kube-system")
    expect(page.locator("#report")).to_contain_text("Missing: get, list, watch, create, update, delete on")
    clean(page)

    page.get_by_label("Token", exact=True).fill(lab.token)
    page.get_by_label("Name", exact=False).first.fill("real")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.get_by_text("real connected. The first sync is running")).to_be_visible()
    page.get_by_role("button", name="Test connection", exact=True).click()
    expect(page.locator("#report")).to_contain_text("The account has all required permissions")
    page.get_by_text("permissions, all granted").click()
    clean(page)
    assert lab.token not in page.content()

    cluster = Cluster.objects.get(name="real")
    assert reconcile(cluster).state == "succeeded"
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("link", name="Remove cluster…").click()
    expect(page.get_by_text("PriorityClass")).to_be_visible()
    clean(page)
    page.get_by_label("Cluster name").fill("another")
    page.get_by_role("button", name="Delete objects", exact=True).click()
    expect(page.get_by_text("The name does not match this cluster.")).to_be_visible()
    page.get_by_label("Cluster name").fill("real")
    page.get_by_role("button", name="Delete objects", exact=True).click()
    expect(page.get_by_text("The list returns when the deletion has finished.")).to_be_visible()
    assert continue_removal(cluster).state == "succeeded"
    page.get_by_role("link", name="Show remaining objects").click()
    expect(page.get_by_text("None. No object in the cluster has Rung's label.")).to_be_visible()
    page.get_by_label("Cluster name").fill("real")
    page.get_by_role("button", name="Remove from Rung", exact=True).click()
    expect(page.get_by_text("real removed.")).to_be_visible()
    assert not ClusterCredential.objects.exists()
    assert [said for said in window.complaints if "422" not in said] == []
    assert window.foreign == []


def test_a_refusal_is_shown_at_its_field_and_keeps_everything_but_the_secret(visit: Visitor, admin: User) -> None:
    page = visit(admin).open("/connect-cluster/")
    page.get_by_label("Name", exact=False).first.fill("real")
    page.get_by_label("Server, certificate authority and token").check()
    page.get_by_label("Server", exact=True).fill("http://10.0.0.1")
    page.get_by_label("Token", exact=True).fill("a secret token")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.get_by_text("The address must be https://host:port")).to_be_visible()
    expect(page.get_by_label("Server", exact=True)).to_have_value("http://10.0.0.1")
    expect(page.get_by_label("Name", exact=False).first).to_have_value("real")
    expect(page.get_by_label("Token", exact=True)).to_have_value("")
    clean(page)


def test_the_rights_come_as_a_file(visit: Visitor, admin: User) -> None:
    page = visit(admin).open("/connect-cluster/")
    with page.expect_download() as download:
        page.get_by_role("link", name="Permissions for kube-scheduler", exact=True).click()
    assert download.value.suggested_filename == "rung-rights-kube.yaml"
    assert "ClusterRoleBinding" in download.value.path().read_text()


def _weak_token(cluster: LabCluster, space: str) -> str:
    cluster.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "weak", "namespace": space}}
    cluster.admin.create(account)
    return cluster.admin.token(space, "weak")
