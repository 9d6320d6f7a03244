"""Pages of clusters: list, detail, differences, sync runs, scheduler switch and node pools."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.connection.services.scheduler_config import configuration_warnings, guarantees_on, shard_warnings
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import (
    request_reconcile,
    set_pod_security,
)
from clusters.ports.gateway import ClusterError
from clusters.sync.models import Drift
from clusters.sync.selectors import comparison_of
from clusters.sync.services.drift import REPAIRABLE, adopt, repair, request_dry_run
from clusters.sync.services.scheduler_switch import check_generation, plan_switch
from clusters.watch.services.visibility_poller import job_rejection_of
from clusters.web.forms import LEVELS, NodePoolChangeForm, NodePoolForm
from clusters.web.selectors import (
    cluster_rows,
    difference,
    drifts_of,
    former_schedulers_of,
    hidden_drifts,
    level_rows,
    node_rows,
    object_visibility,
    outcomes_of,
    pool_rows,
    runs_of,
    unanswered_kinds,
)
from clusters.web.serializers.inventory import (
    cluster_action_request,
    create_pool_request,
    delete_pool_request,
    object_action_request,
    update_pool_request,
)
from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import RungError
from portal.kit.pages.api_snippets import action_snippet, form_snippets
from portal.kit.pages.forms import form_data
from portal.kit.pages.htmx import render_page
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import can, require
from tenants.usage.selectors import chosen_span, trend_context
from workloads.forecast.selectors.accuracy import (
    CALIBRATION_WEEKS,
    in_words,
    missed_forecasts,
    start_calibration,
    tallies,
    together,
)
from workloads.lifecycle.selectors.activity import activity_context, evictions_of, loads_by_cluster
from workloads.plans.services.plans import plan_page

CLUSTERS: Final = 25
"""Clusters on a page of the list."""
NODES: Final = 100
"""Nodes on a page of a cluster."""
RUNS: Final = 10
"""The newest runs on a page."""
DRIFTS: Final = 50
"""Differences on a page."""
TABS: Final = {
    "nodes": gettext_lazy("Nodes"),
    "sync": gettext_lazy("Sync runs"),
    "drift": gettext_lazy("Drift"),
    "activity": gettext_lazy("Activity"),
    "guarantees": gettext_lazy("Scheduler support"),
}
ADMIN_TABS: Final = {**TABS, "forecasts": gettext_lazy("Forecasts")}
MISSED: Final = 25
"""Forecasts that did not hold on a page."""


@login_required
@require_safe
def cluster_list(request: HttpRequest) -> HttpResponse:
    titles = {name: flavour.title for name, flavour in FLAVOURS.items()}
    may_connect = can(actor_of(request), Permission.MANAGE_CLUSTERS)
    page = page_of(Cluster.objects.all(), column="name", after=request.GET.get("after", ""), size=CLUSTERS)
    context = {
        "rows": cluster_rows(page.rows),
        "loads": loads_by_cluster(page.rows, now=timezone.now()),
        "page": page,
        "titles": titles,
        "may_connect": may_connect,
    }
    return render_page(request, "clusters/list.html", context, parts=("clusters",))


@login_required
@require_safe
def cluster_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One cluster: nodes, runs, drift, and what its scheduler cannot enforce."""
    cluster = get_object_or_404(Cluster, name=name)
    flavour, nodes = flavour_for(cluster.flavour), node_rows(cluster)
    may = can(actor_of(request), Permission.MANAGE_CLUSTERS)
    tabs = ADMIN_TABS if may else TABS
    tab = request.GET.get("tab", "")
    tab, after = tab if tab in tabs else "nodes", request.GET.get("after", "")
    context = {
        "cluster": cluster,
        "compared": comparison_of(cluster),
        "flavour": flavour,
        "guarantees": guarantees_on(cluster),
        "configured_by": flavour.traits.configuration,
        "warnings": configuration_warnings(flavour, cluster.configured),
        "silent_kinds": unanswered_kinds(cluster),
        "shard_warnings": shard_warnings(cluster),
        "nodes": Paginator(nodes, NODES).get_page(request.GET.get("page")),
        "pools": pool_rows(nodes),
        **_compared(actor_of(request), cluster, tab, after),
        "leavings": former_schedulers_of(cluster),
        "door": job_rejection_of(cluster),
        "tab": tab,
        "tabs": tabs.items(),
        "may_reconcile": may,
        **(_forecasts(request, cluster, after) if tab == "forecasts" else {}),
        **(_activity(request, cluster, after) if tab == "activity" else {}),
    }
    return render_page(request, "clusters/detail.html", context, parts=("cluster",))


def _activity(request: HttpRequest, cluster: Cluster, after: str) -> dict[str, Any]:
    """GPUs in use and evictions over time, what waits, and how long workloads waited."""
    span, now = chosen_span(request.GET.get("span", "")), timezone.now()
    page, rows = evictions_of(cluster, actor_of(request), after=after)
    figures = trend_context(cluster, span, now=now) | activity_context(cluster, span, now=now)
    return {**figures, "page": page, "eviction_rows": rows}


def _compared(actor: Actor, cluster: Cluster, tab: str, after: str) -> dict[str, Any]:
    """The newest runs, or a page of drift: as far as the reader may see."""
    visible = object_visibility(actor, cluster)
    if tab == "sync":
        return {"runs": runs_of(cluster, visible)[:RUNS]}
    if tab != "drift":
        return {}
    drifts = page_of(drifts_of(cluster, visible), column="name", after=after, size=DRIFTS)
    return {"drifts": drifts, "hidden_drifts": hidden_drifts(cluster, visible)}


def _forecasts(request: HttpRequest, cluster: Cluster, after: str) -> dict[str, Any]:
    """How many held by week, and a page of those that did not."""
    found = tallies(cluster, weeks=CALIBRATION_WEEKS)
    overall = together(found)
    page = page_of(missed_forecasts(cluster), column="-at", after=after, size=MISSED)
    missed = in_words(page.rows, actor_of(request))
    return {
        "tallies": found,
        "overall": overall,
        "missed": missed,
        "page": page,
        "weeks": CALIBRATION_WEEKS,
        "none_missed": _("They are no longer stored.")
        if overall.missed
        else _("None in the newest %(weeks)s weeks.") % {"weeks": CALIBRATION_WEEKS},
        "starts": start_calibration(cluster, weeks=CALIBRATION_WEEKS),
    }


@login_required
@require_POST
def pod_security(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    cluster, level = get_object_or_404(Cluster, name=name), request.POST.get("level", "")
    if copied := action_snippet(
        request, cluster_action_request(cluster, "pod-security", {"podSecurity": level}, verb="PUT")
    ):
        return copied
    set_pod_security(cluster=cluster, level=level, actor=actor)
    messages.success(request, _("The Pod Security level of %(name)s is being changed.") % {"name": cluster.name})
    return redirect(f"{reverse('clusters:detail', args=[cluster.name])}?tab=guarantees")


@login_required
@require_POST
def defer_preemptors(request: HttpRequest, name: str) -> HttpResponse:
    """The plan to let Rung defer who would evict a run inside its minimum runtime, or to stop it."""
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    cluster, enabled = get_object_or_404(Cluster, name=name), request.POST.get("enabled", "") == "on"
    if copied := action_snippet(
        request, cluster_action_request(cluster, "defer-preemptors", {"deferPreemptors": enabled}, verb="PUT")
    ):
        return copied
    change = {"cluster": cluster.name, "defer_preemptors": enabled}
    return redirect(plan_page("defer_preemptors", change, actor))


@login_required
@require_POST
def reconcile_now(request: HttpRequest, name: str) -> HttpResponse:
    """Ask for a reconcile now; a worker does it."""
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    if copied := action_snippet(request, cluster_action_request(cluster, "syncs")):
        return copied
    request_reconcile(cluster, actor)
    messages.success(request, _("Reconcile of %(name)s started. The run appears below.") % {"name": cluster.name})
    return redirect(f"{reverse('clusters:detail', args=[cluster.name])}?tab=sync")


OUTCOMES: Final = 100
"""Objects of a run on a page."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def show_difference(request: HttpRequest, name: str) -> HttpResponse:
    """One object's difference with what may be done about it; POST does it."""
    drift = _named(request, name)
    actor = actor_of(request)
    if request.method != "POST":
        may = can(actor, Permission.MANAGE_CLUSTERS)
        context = {"cluster": drift.cluster, "drift": drift, "may": may, "repairable": drift.category in REPAIRABLE}
        return render(request, "clusters/sync/difference.html", context)
    require(actor, Permission.MANAGE_CLUSTERS)
    adopted = request.POST.get("uid", "") if request.POST.get("act") == "adopt" else None
    if copied := action_snippet(request, object_action_request(drift, adopted=adopted)):
        return copied
    if adopted is not None:
        adopt(drift=drift, uid=adopted, actor=actor)
        messages.success(request, _("The next sync run takes over %(name)s.") % {"name": drift.name})
    else:
        repair(drift=drift, actor=actor)
        messages.success(request, _("The next sync run repairs %(name)s.") % {"name": drift.name})
    return redirect(f"{reverse('clusters:detail', args=[name])}?tab=drift")


@login_required
@require_POST
def start_dry_run(request: HttpRequest, name: str) -> HttpResponse:
    """Ask what a reconcile would do; a worker finds out."""
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    if copied := action_snippet(request, cluster_action_request(cluster, "sync-dry-runs")):
        return copied
    request_dry_run(cluster=cluster, actor=actor)
    messages.success(request, _("Dry run started. It appears below within seconds."))
    return redirect(f"{reverse('clusters:detail', args=[name])}?tab=sync")


@login_required
@require_safe
def show_run(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Every object of a run, page by page."""
    cluster, actor = get_object_or_404(Cluster, name=name), actor_of(request)
    visible = object_visibility(actor, cluster)
    found = get_object_or_404(runs_of(cluster, visible, outcomes=0), pk=number)
    page = page_of(outcomes_of(found, visible), column="id", after=request.GET.get("after", ""), size=OUTCOMES)
    context = {
        "cluster": cluster,
        "run": found,
        "owners": visible.owners_in(found.scope),
        "may_reconcile": visible.everything,
        "page": page,
    }
    return render(request, "clusters/sync/run.html", context)


def _named(request: HttpRequest, name: str) -> Drift:
    """Absent once the object is as it should be."""
    cluster = get_object_or_404(Cluster, name=name)
    kind, namespace, called = (request.GET.get(part, "") for part in ("kind", "namespace", "name"))
    visible = object_visibility(actor_of(request), cluster)
    drift = difference(cluster, visible, kind=kind, namespace=namespace, name=called)
    if drift is None:
        raise Http404
    return drift


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def scheduler(request: HttpRequest, name: str) -> HttpResponse:
    """Choose another scheduler, see what it would do (`to`), and open the plan that does it (POST)."""
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    refusal = ""
    if request.method == "POST":
        flavour, generation = request.POST.get("to", ""), _generation_in(request)
        change = {"flavour": flavour, "generation": generation}
        if copied := action_snippet(request, cluster_action_request(cluster, "scheduler", change, verb="PUT")):
            return copied
        try:
            check_generation(cluster, generation)
            return redirect(plan_page("scheduler", {"cluster": cluster.name, "flavour": flavour}, actor))
        except (RungError, ClusterError) as error:
            refusal = error.message
    chosen = request.POST.get("to") or request.GET.get("to", "")
    context = {
        "cluster": cluster,
        "flavour": flavour_for(cluster.flavour),
        "choices": [each for each in FLAVOURS.values() if each.name != cluster.flavour],
        "chosen": chosen,
        "leavings": former_schedulers_of(cluster),
        "refusal": refusal,
        "may_replay": can(actor, Permission.MANAGE_DICTIONARY),
        **_planned(cluster, chosen),
    }
    return render(request, "clusters/sync/scheduler_switch.html", context, status=409 if refusal else 200)


def _planned(cluster: Cluster, chosen: str) -> dict[str, Any]:
    """Nothing chosen yet: nothing planned."""
    if not chosen or chosen == cluster.flavour:
        return {}
    try:
        return {"plan": plan_switch(cluster=cluster, flavour=chosen)}
    except (RungError, ClusterError) as error:
        return {"unplanned": error.message}


def _generation_in(request: HttpRequest) -> int:
    """That of the plan; what is no number is no plan's."""
    text = request.POST.get("generation", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1


@login_required
@require_http_methods(["GET", "POST"])
def node_pools(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    form = NodePoolForm(form_data(request), flavour=flavour_for(cluster.flavour))
    if shown := form_snippets(request, form, lambda: create_pool_request(cluster, form.cleaned_data)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            given = {**form.cleaned_data}
            change = {"op": "create", "cluster": cluster.name, "pool": given.pop("name"), **given}
            return redirect(plan_page("node_pool", change, actor))
        except RungError as error:
            form.show(error, LEVELS)
    rows = list(cluster.node_pools.all())
    levels = level_rows(rows)
    context = {"cluster": cluster, "pools": [(each, levels.get(each.pk, [])) for each in rows], "form": form}
    return render(request, "clusters/inventory/node_pools.html", context, status=422 if form.errors else 200)


@login_required
@require_http_methods(["GET", "POST"])
def change_node_pool(request: HttpRequest, name: str, pool: str) -> HttpResponse:
    """The label that makes a pool, its topology levels, whether it is the default."""
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    row = get_object_or_404(NodePool.objects.select_related("cluster"), cluster__name=name, name=pool)
    form = NodePoolChangeForm(form_data(request), pool=row, flavour=flavour_for(row.cluster.flavour))
    if shown := form_snippets(request, form, lambda: update_pool_request(row, form.cleaned_data)):
        return shown
    levels = level_rows([row]).get(row.pk, [])
    if request.method == "POST" and form.is_valid():
        try:
            form.check_changed()
            change = {"op": "change", "cluster": name, "pool": row.name, **form.cleaned_data}
            return redirect(plan_page("node_pool", change, actor))
        except RungError as error:
            form.show(error, LEVELS)
    context = {"cluster": row.cluster, "pool": pool, "form": form, "levels": levels}
    return render(request, "clusters/inventory/node_pool.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def remove_node_pool(request: HttpRequest, name: str, pool: str) -> HttpResponse:
    """Open the plan that removes a pool; refused while a quota names it."""
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    row = get_object_or_404(NodePool, cluster__name=name, name=pool)
    if copied := action_snippet(request, delete_pool_request(row)):
        return copied
    return redirect(plan_page("node_pool", {"op": "delete", "cluster": name, "pool": row.name}, actor))
