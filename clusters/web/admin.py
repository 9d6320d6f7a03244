"""Clusters and node pools in the admin console: to look at. Only a sandbox's speed is set here, through its service."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from clusters.inventory.models import Cluster, NodePool
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services.simulation import FASTEST, set_speed
from portal.kit.security.request_identity import actor_of


class ReadOnly(admin.ModelAdmin):
    """A page that shows rows and changes none. For superusers, by Django's own permissions."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Cluster)
class ClusterAdmin(ReadOnly):
    """How clusters stand; the pages of the portal say more."""

    list_display = ["name", "flavour", "backend", "state", "defer_preemptors", "version", "synced_at", "observed_at"]
    list_filter = ["flavour", "backend", "state", "defer_preemptors"]
    search_fields = ["name"]


@admin.register(NodePool)
class NodePoolAdmin(ReadOnly):
    """Node pools and the label that makes them."""

    list_display = ["name", "cluster", "label_key", "label_value", "is_default", "gpu_placement", "topology_levels"]
    list_filter = ["cluster"]
    list_select_related = ["cluster"]


class SpeedForm(forms.ModelForm):
    """How many times faster run times and grace periods pass."""

    speed = forms.IntegerField(min_value=1, max_value=FASTEST)

    class Meta:
        model = SandboxClock
        fields = ["speed"]


@admin.register(SandboxClock)
class SandboxClockAdmin(ReadOnly):
    """The speed of simulated clusters."""

    form = SpeedForm
    list_display = ["cluster", "speed", "ticked_at"]
    readonly_fields = ["cluster"]
    list_select_related = ["cluster"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def save_model(self, request: HttpRequest, obj: SandboxClock, form: Any, change: Any) -> None:
        set_speed(cluster=obj.cluster, speed=form.cleaned_data["speed"], actor=actor_of(request))
