"""Clusters in the admin console: to look at; a sandbox's speed is set through its service."""

import pytest
from django.test import Client
from django.urls import reverse

from clusters.inventory.models import Cluster
from clusters.sandbox.models import SandboxClock
from portal.audit.models import AuditRecord


@pytest.fixture
def sandbox(db: None) -> Cluster:
    """A simulated cluster with its clock."""
    cluster = Cluster.objects.create(name="atlas", flavour="kai", backend="sandbox")
    SandboxClock.objects.create(cluster=cluster)
    return cluster


@pytest.mark.parametrize("page", ["cluster", "nodepool", "sandboxclock"])
def test_pages_open_and_offer_nothing_to_add(admin_client: Client, sandbox: Cluster, page: str) -> None:
    assert admin_client.get(reverse(f"admin:clusters_{page}_changelist")).status_code == 200
    assert admin_client.get(reverse(f"admin:clusters_{page}_add")).status_code == 403


def test_a_cluster_is_not_changed_here(admin_client: Client, sandbox: Cluster) -> None:
    page = reverse("admin:clusters_cluster_change", args=[sandbox.pk])
    assert admin_client.get(page).status_code == 200
    assert admin_client.post(page, {"name": "other", "flavour": "kube"}).status_code == 403
    sandbox.refresh_from_db()
    assert sandbox.name == "atlas"


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
