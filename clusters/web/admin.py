"""Clusters and node pools in the admin console. Save opens a plan; the speed of a sandbox is set at once."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import (
    create_node_pool,
    delete_node_pool,
    set_defer_preemptors,
    update_node_pool,
)
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services.simulation import FASTEST, set_speed
from portal.kit.api.routes import PlannedWrite
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.admin.service_admin import PlannedAdmin, SaveResult, ServiceForm, admin_actor
from tenants.access.rules import Permission

COLUMNS: Final = ("label_key", "label_value", "gpu_placement", "topology_levels", "is_default")


class ReadOnly(admin.ModelAdmin):
    """A page that shows rows and changes none. For superusers, by Django's own permissions."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ClusterForm(ServiceForm):
    """The only setting of a cluster that the console changes."""

    class Meta:
        model = Cluster
        fields = ["defer_preemptors"]


@admin.register(Cluster)
class ClusterAdmin(ReadOnly, PlannedAdmin):
    """Clusters, to look at. Save opens a plan of deferring preemptors; their scheduler is planned on its own page."""

    form = ClusterForm
    readonly_fields = [
        *(field.name for field in Cluster._meta.fields if field.editable and field.name != "defer_preemptors"),
        "change_scheduler",
    ]
    list_display = ["name", "flavour", "backend", "state", "defer_preemptors", "version", "synced_at", "observed_at"]
    list_filter = ["flavour", "backend", "state", "defer_preemptors"]
    search_fields = ["name"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def planned(self, obj: Cluster, data: Mapping[str, Any] | None) -> PlannedWrite | None:
        wanted = {} if data is None else {"defer_preemptors": data["defer_preemptors"]}
        if not wanted or Cluster.objects.filter(pk=obj.pk, **wanted).exists():
            return None
        return "defer_preemptors", {"cluster": obj.name, **wanted}

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, enabled = Cluster.objects.get(pk=form.instance.pk), form.cleaned_data["defer_preemptors"]
        set_defer_preemptors(cluster=row, enabled=enabled, actor=admin_actor(request))
        return SaveResult(row)

    def remove(self, actor: Actor, obj: Cluster) -> None:
        """Clusters are removed on their page."""

    @admin.display(description=_("scheduler"))
    def change_scheduler(self, obj: Cluster) -> str:
        return format_html('<a href="{}">{}</a>', reverse("clusters:scheduler", args=[obj.name]), _("Plan a change…"))


class NodePoolAdminForm(ServiceForm):
    """The label that makes a node pool, and how its nodes are filled."""

    field_at = {f"/{name}": name for name in ("name", *COLUMNS)}

    class Meta:
        model = NodePool
        fields = ["cluster", "name", *COLUMNS]

    def validate_constraints(self) -> None:
        """The service takes the default from the pool that has it, and says what is taken."""


@admin.register(NodePool)
class NodePoolAdmin(PlannedAdmin):
    """Node pools and the label that makes them. Save opens a plan."""

    permission = Permission.MANAGE_CLUSTERS
    form = NodePoolAdminForm
    fixed_fields = ("cluster", "name")
    list_display = ["name", "cluster", "label_key", "label_value", "is_default", "gpu_placement", "topology_levels"]
    list_filter = ["cluster"]
    list_select_related = ["cluster"]

    def planned(self, obj: NodePool, data: Mapping[str, Any] | None) -> PlannedWrite:
        named = {"cluster": obj.cluster.name, "pool": obj.name}
        if data is None:
            return "node_pool", {"op": "delete", **named}
        return "node_pool", {"op": "change" if obj.pk else "create", **named, **_columns(data)}

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, actor, values = form.instance, admin_actor(request), _columns(form.cleaned_data)
        if change:
            pool = NodePool.objects.select_related("cluster").get(pk=row.pk)  # the form has changed its own
            return SaveResult(update_node_pool(pool=pool, actor=actor, **values))
        return SaveResult(create_node_pool(cluster=row.cluster, name=row.name, actor=actor, **values))

    def remove(self, actor: Actor, obj: NodePool) -> None:
        delete_node_pool(pool=obj, actor=actor)


def _columns(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] or [] if name == "topology_levels" else data[name] for name in COLUMNS}


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
