"""The page that gives a cluster another scheduler: who may, what it says before, and that it does what it said."""

import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any

import pytest
from django.test import Client

from clusters.backends.memory import MemoryGateway, store_of
from clusters.connection.services.gateways import BACKENDS
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.gateway import Kind, NotAuthorized
from clusters.sync.models import FormerFlavour
from clusters.sync.services.reconcile import reconcile
from tenants.access.models import User
from tests.factories.cast import applied

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
PAGE = "/clusters/lab/scheduler/"


class WithoutKueueRights(MemoryGateway):
    """A class of its own: isinstance() remembers which classes have the methods of a protocol."""

    def review(self, _kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"allowed": "kueue" not in spec["resourceAttributes"]["group"]}

    def list(self, kind: Kind, **how: Any) -> Any:
        if "kueue" in kind.group:
            raise NotAuthorized(f"{kind.plural}.{kind.group} is forbidden")
        return super().list(kind, **how)


def words(body: bytes) -> str:
    return " ".join(unescape(body.decode()).split())


def test_only_platform_admins_may_switch_the_scheduler(client_of: Clients, alice: User, cluster: Cluster) -> None:
    assert client_of(alice).get(PAGE).status_code == 403
    assert client_of(alice).post(PAGE, {"to": "kube", "generation": cluster.generation}).status_code == 403
    assert Client().get(PAGE).status_code == 302
    assert "Change scheduler…" not in words(client_of(alice).get("/clusters/lab/?tab=guarantees").content)


def test_it_tells_first_and_switches_then(client_of: Clients, admin: User, cluster: Cluster) -> None:
    reconcile(cluster)
    assert PAGE in words(client_of(admin).get("/clusters/lab/?tab=guarantees").content)
    page = client_of(admin).get(PAGE, {"to": "kueue"})
    said = words(page.content)
    assert "KAI Scheduler → Kueue" in said
    assert "Estimate from the cluster's objects, read" in said
    assert "ResourceFlavor.kueue.x-k8s.io" in said
    assert Cluster.objects.get().flavour == "kai"
    sent = {"to": "kueue", "generation": page.context["plan"].generation}
    answer = client_of(admin).post(PAGE, sent)
    assert Cluster.objects.get().flavour == "kai"
    assert "Scheduler of lab: KAI Scheduler → Kueue" in words(client_of(admin).get(answer["Location"]).content)
    applied(client_of(admin), answer)
    assert Cluster.objects.get().flavour == "kueue"
    assert "This cluster ran KAI Scheduler until" in words(client_of(admin).get("/clusters/lab/?tab=sync").content)


def test_a_switch_links_to_a_replay_under_the_new_scheduler(client_of: Clients, admin: User, cluster: Cluster) -> None:
    page = unescape(client_of(admin).get(PAGE, {"to": "volcano"}).content.decode())
    (link,) = re.findall(r'href="(/replay/[^"]*)"', page)
    form = client_of(admin).get(link).context["form"]
    chosen = {name: form[name].value() for name in ("cluster", "proposed_scheduler")}
    assert chosen == {"cluster": cluster.pk, "proposed_scheduler": "volcano"}


def test_a_plan_that_is_no_longer_true_is_shown_again(client_of: Clients, admin: User, cluster: Cluster) -> None:
    sent = {"to": "kube", "generation": client_of(admin).get(PAGE, {"to": "kube"}).context["plan"].generation}
    mark_dirty(cluster)
    answer = client_of(admin).post(PAGE, sent)
    assert answer.status_code == 409
    assert "changed after this plan was created" in words(answer.content)
    assert answer.context["plan"].generation > sent["generation"]
    assert not FormerFlavour.objects.exists()


@pytest.mark.parametrize("generation", ["", "-1", "x", "9" * 40, "٣"])
def test_a_generation_that_is_none_is_no_longer_true(
    client_of: Clients, admin: User, cluster: Cluster, generation: str
) -> None:
    assert client_of(admin).post(PAGE, {"to": "kube", "generation": generation}).status_code == 409
    assert Cluster.objects.get().flavour == "kai"


def test_what_is_not_served_is_in_red_without_a_button(
    client_of: Clients, admin: User, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryGateway, "serves", lambda _self, kind: "volcano" not in kind.group)
    said = words(client_of(admin).get(PAGE, {"to": "volcano"}).content)
    assert "The cluster does not serve Queue of scheduling.volcano.sh/v1beta1" in said
    assert "Switch to Volcano" not in said


def test_missing_rights_are_named_with_a_file_for_both_schedulers(
    client_of: Clients, admin: User, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account has the rights of the old scheduler alone, so nothing of the new one's kinds may be listed."""
    monkeypatch.setitem(BACKENDS, "memory", lambda cluster: WithoutKueueRights(store_of(str(cluster.pk))))
    page = client_of(admin).get(PAGE, {"to": "kueue"})
    said = words(page.content)
    assert "clusterqueues.kueue.x-k8s.io</span>: get, list, watch, create, update, delete" in said
    assert "/connect-cluster/rights/kueue.yaml?beside=kai" in said
    assert "manage.py cluster_rbac --flavour kueue --beside kai" in said
    assert "Rung cannot list these kinds: WorkloadPriorityClass.kueue.x-k8s.io" in said
    assert "Switch to Kueue" not in said
    sent = {"to": "kueue", "generation": page.context["plan"].generation}
    refused = client_of(admin).post(PAGE, sent)
    assert refused.status_code == 409
    assert "clusterqueues.kueue.x-k8s.io" in words(refused.content)


@pytest.mark.parametrize("to", ["slurm", "<script>"])
def test_what_is_no_scheduler_is_said_to_be_none(client_of: Clients, admin: User, cluster: Cluster, to: str) -> None:
    answer = client_of(admin).get(PAGE, {"to": to})
    assert answer.status_code == 200
    assert "is not a scheduler" in words(answer.content)


def test_rights_for_both_schedulers_come_in_one_file(client_of: Clients, admin: User) -> None:
    both = client_of(admin).get("/connect-cluster/rights/kueue.yaml?beside=kai").content.decode()
    assert "clusterqueues" in both
    assert "scheduling.run.ai" in both
    assert client_of(admin).get("/connect-cluster/rights/kueue.yaml?beside=slurm").status_code == 404
