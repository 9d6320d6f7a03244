"""Clusters in the admin console: to look at; Save opens the plan of a node pool; a sandbox's speed is set at once."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from clusters.inventory.models import Cluster, NodePool
from clusters.sandbox.models import SandboxClock
from portal.audit.models import AuditRecord
from tenants.access.models import User
from workloads.plans.models import Plan


@pytest.fixture
def sandbox(db: None) -> Cluster:
    """A simulated cluster with its clock."""
    cluster = Cluster.objects.create(name="atlas", flavour="kai", backend="sandbox")
    SandboxClock.objects.create(cluster=cluster)
    return cluster


@pytest.mark.parametrize("page", ["cluster", "sandboxclock"])
def test_pages_open_and_offer_nothing_to_add(admin_client: Client, sandbox: Cluster, page: str) -> None:
    assert admin_client.get(reverse(f"admin:clusters_{page}_changelist")).status_code == 200
    assert admin_client.get(reverse(f"admin:clusters_{page}_add")).status_code == 403


def test_a_cluster_is_neither_renamed_nor_switched_nor_deleted_here(admin_client: Client, sandbox: Cluster) -> None:
    page = reverse("admin:clusters_cluster_change", args=[sandbox.pk])
    assert admin_client.get(page).status_code == 200
    assert admin_client.post(page, {"name": "other", "flavour": "kube"}).status_code == 302
    assert admin_client.post(reverse("admin:clusters_cluster_delete", args=[sandbox.pk])).status_code == 403
    sandbox.refresh_from_db()
    assert (sandbox.name, sandbox.flavour) == ("atlas", "kai")


def test_saving_the_deferral_of_preemptors_opens_a_plan(admin_client: Client, sandbox: Cluster) -> None:
    page = reverse("admin:clusters_cluster_change", args=[sandbox.pk])
    answer = admin_client.post(page, {"defer_preemptors": "on", "name": "other"})
    plan = Plan.objects.get()
    assert (answer["Location"], plan.title) == (f"/plans/{plan.pk}/", "Defer preemptors on atlas")
    sandbox.refresh_from_db()
    assert (sandbox.name, sandbox.defer_preemptors) == ("atlas", False)
    assert admin_client.post(f"/plans/{plan.pk}/apply/").status_code == 302
    sandbox.refresh_from_db()
    assert sandbox.defer_preemptors
    assert admin_client.post(page, {"defer_preemptors": "on"})["Location"] == "/admin/clusters/cluster/"
    assert Plan.objects.count() == 1


def test_the_speed_is_set_and_recorded(admin_client: Client, sandbox: Cluster) -> None:
    page = reverse("admin:clusters_sandboxclock_change", args=[sandbox.pk])
    assert admin_client.post(page, {"speed": "60"}).status_code == 302
    assert SandboxClock.objects.get().speed == 60
    entry = AuditRecord.objects.get(action="sandbox.set_speed")
    assert (entry.actor_name, entry.channel) == ("admin", "admin")


@pytest.mark.parametrize("speed", ["0", "-1", "99999", "fast", ""])
def test_a_speed_out_of_bounds_is_a_form_error(admin_client: Client, sandbox: Cluster, speed: str) -> None:
    page = reverse("admin:clusters_sandboxclock_change", args=[sandbox.pk])
    answer = admin_client.post(page, {"speed": speed})
    assert answer.status_code == 200
    assert "speed" in answer.context["adminform"].form.errors
    assert SandboxClock.objects.get().speed == 1


def test_saving_a_node_pool_opens_a_plan(client_of: Callable[[User], Client], admin: User, h100: NodePool) -> None:
    client = client_of(admin)
    sent = {"label_key": "pool", "label_value": "h100-nvl", "gpu_placement": "binpack", "topology_levels": "[]"}
    answer = client.post(reverse("admin:clusters_nodepool_change", args=[h100.pk]), {**sent, "is_default": "on"})
    plan = Plan.objects.get()
    assert answer["Location"] == f"/plans/{plan.pk}/"
    assert "label" in plan.effect["sentence"]
    h100.refresh_from_db()
    assert h100.label_value == "h100"
    added = {**sent, "cluster": h100.cluster_id, "name": "l40s", "label_value": "l40s"}
    client.post(reverse("admin:clusters_nodepool_add"), added)
    assert Plan.objects.latest("created_at").title == "Create node pool l40s of lab"
    page = client.get(reverse("admin:clusters_cluster_change", args=[h100.cluster_id])).content.decode()
    assert "/clusters/lab/scheduler/" in page
