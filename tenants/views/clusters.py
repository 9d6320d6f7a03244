"""Pages of the clusters. They stand here because what a person may do to a cluster is the tenants' side's to say."""

from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from clusters.flavours import FLAVOURS, flavour_for
from clusters.models import Cluster
from clusters.selectors import (
    cluster_rows,
    comparison_of,
    drifts_of,
    leavings_of,
    node_rows,
    pool_rows,
    runs_of,
    silent_kinds,
)
from clusters.services.configured import promises_on, warnings_of
from clusters.services.estate import request_reconcile
from clusters.services.inquiries import door_of
from clusters.services.security import set_pod_security
from clusters.services.shards import shard_warnings
from portal.core.copying import copies_of_act
from portal.core.htmx import render_page
from portal.core.http import actor_of
from portal.core.keyset import page_of
from tenants.permissions import Verb, can, require
from tenants.twins import asked_of

RUNS: Final = 10
"""The newest runs on a page."""
DRIFTS: Final = 50
"""Differences on a page."""
TABS: Final = {
    "nodes": gettext_lazy("Nodes"),
    "sync": gettext_lazy("Sync runs"),
    "drift": gettext_lazy("Drift"),
    "promises": gettext_lazy("What it enforces"),
}


@login_required
@require_safe
def cluster_list(request: HttpRequest) -> HttpResponse:
    """Every cluster with its figures."""
    titles = {name: flavour.title for name, flavour in FLAVOURS.items()}
    may_connect = can(actor_of(request), Verb.MANAGE_CLUSTERS)
    context = {"rows": cluster_rows(), "titles": titles, "may_connect": may_connect}
    return render_page(request, "tenants/clusters.html", context, parts=("clusters",))


@login_required
@require_safe
def cluster_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One cluster: nodes, runs, drift, and what its scheduler cannot enforce."""
    cluster = get_object_or_404(Cluster, name=name)
    flavour, nodes = flavour_for(cluster.flavour), node_rows(cluster)
    tab = request.GET.get("tab", "")
    context = {
        "cluster": cluster,
        "compared": comparison_of(cluster),
        "flavour": flavour,
        "promises": promises_on(cluster),
        "configured_by": flavour.traits.configuration,
        "warnings": warnings_of(flavour, cluster.configured),
        "silent_kinds": silent_kinds(cluster),
        "shard_warnings": shard_warnings(cluster),
        "nodes": nodes,
        "pools": pool_rows(nodes),
        "runs": runs_of(cluster)[:RUNS],
        "drifts": page_of(drifts_of(cluster), column="name", after=request.GET.get("after", ""), size=DRIFTS),
        "leavings": leavings_of(cluster),
        "door": door_of(cluster),
        "tab": tab if tab in TABS else "nodes",
        "tabs": TABS.items(),
        "may_reconcile": can(actor_of(request), Verb.MANAGE_CLUSTERS),
    }
    return render_page(request, "tenants/cluster.html", context, parts=("cluster",))


@login_required
@require_POST
def pod_security(request: HttpRequest, name: str) -> HttpResponse:
    """Choose what pods in project namespaces must satisfy."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    cluster, level = get_object_or_404(Cluster, name=name), request.POST.get("level", "")
    if copied := copies_of_act(request, asked_of(cluster, "pod-security", {"podSecurity": level}, verb="PUT")):
        return copied
    set_pod_security(cluster=cluster, level=level, actor=actor)
    messages.success(request, _("Project namespaces of %(name)s are brought to this level.") % {"name": cluster.name})
    return redirect(f"{reverse('tenants:cluster', args=[cluster.name])}?tab=promises")


@login_required
@require_POST
def reconcile_now(request: HttpRequest, name: str) -> HttpResponse:
    """Ask for a reconcile now; a worker does it."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    if copied := copies_of_act(request, asked_of(cluster, "syncs")):
        return copied
    request_reconcile(cluster, actor)
    messages.success(request, _("Asked for a reconcile of %(name)s. Its run appears below.") % {"name": cluster.name})
    return redirect(f"{reverse('tenants:cluster', args=[cluster.name])}?tab=sync")
