"""One difference of a cluster and what an admin may ask for it; what a run did or would do, object by object."""

from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.models import Cluster, Drift, SyncRun
from clusters.selectors import difference, outcomes_of
from clusters.services.repairs import REPAIRABLE, adopt, repair, request_dry_run
from portal.core.copying import copies_of_act
from portal.core.http import actor_of
from portal.core.keyset import page_of
from tenants.permissions import Verb, can, require
from tenants.twins import asked_of, asked_of_object

OUTCOMES: Final = 100
"""Objects of a run on a page."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def show(request: HttpRequest, name: str) -> HttpResponse:
    """One object's difference with what may be done about it; POST does it."""
    drift = _named(request, name)
    actor = actor_of(request)
    if request.method != "POST":
        may = can(actor, Verb.MANAGE_CLUSTERS)
        context = {"cluster": drift.cluster, "drift": drift, "may": may, "repairable": drift.category in REPAIRABLE}
        return render(request, "tenants/difference.html", context)
    require(actor, Verb.MANAGE_CLUSTERS)
    adopted = request.POST.get("uid", "") if request.POST.get("act") == "adopt" else None
    if copied := copies_of_act(request, asked_of_object(drift, adopted=adopted)):
        return copied
    if adopted is not None:
        adopt(drift=drift, uid=adopted, actor=actor)
        messages.success(request, _("Asked to take over %(name)s. The next run does it.") % {"name": drift.name})
    else:
        repair(drift=drift, actor=actor)
        messages.success(request, _("Asked to repair %(name)s. The next run does it.") % {"name": drift.name})
    return redirect(f"{reverse('tenants:cluster', args=[name])}?tab=drift")


@login_required
@require_POST
def dry_run(request: HttpRequest, name: str) -> HttpResponse:
    """Ask what a reconcile would do; a worker finds out."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    if copied := copies_of_act(request, asked_of(cluster, "sync-rehearsals")):
        return copied
    request_dry_run(cluster=cluster, actor=actor)
    messages.success(request, _("Asked what a reconcile would do. The dry run appears below within seconds."))
    return redirect(f"{reverse('tenants:cluster', args=[name])}?tab=sync")


@login_required
@require_safe
def run(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Every object of a run, page by page."""
    found = get_object_or_404(SyncRun.objects.select_related("cluster"), pk=number, cluster__name=name)
    page = page_of(outcomes_of(found), column="id", after=request.GET.get("after", ""), size=OUTCOMES)
    return render(request, "tenants/run.html", {"cluster": found.cluster, "run": found, "page": page})


def _named(request: HttpRequest, name: str) -> Drift:
    """Absent once the object is as it should be."""
    cluster = get_object_or_404(Cluster, name=name)
    kind, namespace, called = (request.GET.get(part, "") for part in ("kind", "namespace", "name"))
    drift = difference(cluster, kind=kind, namespace=namespace, name=called)
    if drift is None:
        raise Http404
    return drift
