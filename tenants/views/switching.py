"""Another scheduler for a living cluster: what that would do, then doing it. For platform admins."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from clusters.errors import ClusterError
from clusters.flavours import FLAVOURS, flavour_for
from clusters.models import Cluster
from clusters.selectors import leavings_of
from clusters.services.switching import plan_switch, switch_flavour
from portal.core.copying import copies_of_act
from portal.core.errors import RungError
from portal.core.http import actor_of
from tenants.permissions import Verb, require
from tenants.twins import asked_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def scheduler(request: HttpRequest, name: str) -> HttpResponse:
    """Choose another scheduler, see what it would do (`to`), and do it (POST)."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    refusal = ""
    if request.method == "POST":
        flavour, generation = request.POST.get("to", ""), _generation_in(request)
        change = {"flavour": flavour, "generation": generation}
        if copied := copies_of_act(request, asked_of(cluster, "scheduler", change, verb="PUT")):
            return copied
        try:
            switch_flavour(cluster=cluster, flavour=flavour, generation=generation, actor=actor)
            return _switched(request, cluster)
        except (RungError, ClusterError) as error:
            refusal = error.message
    chosen = request.POST.get("to") or request.GET.get("to", "")
    context = {
        "cluster": cluster,
        "flavour": flavour_for(cluster.flavour),
        "choices": [each for each in FLAVOURS.values() if each.name != cluster.flavour],
        "chosen": chosen,
        "leavings": leavings_of(cluster),
        "refusal": refusal,
        **_planned(cluster, chosen),
    }
    return render(request, "tenants/scheduler.html", context, status=409 if refusal else 200)


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
    said = request.POST.get("generation", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else -1


def _switched(request: HttpRequest, cluster: Cluster) -> HttpResponse:
    text = _("%(name)s has another scheduler: %(title)s. The next run makes its objects, then takes the old ones away.")
    messages.success(request, text % {"name": cluster.name, "title": flavour_for(cluster.flavour).title})
    return redirect(f"{reverse('tenants:cluster', args=[cluster.name])}?tab=sync")
