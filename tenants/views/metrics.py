"""Where a cluster's Prometheus is, and what it said last. For platform admins."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from clusters.models import Cluster, MetricsSource
from clusters.services.metrics_source import remove_metrics_source, set_metrics_source
from portal.core.actors import Actor
from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import RungError
from portal.core.http import actor_of
from portal.core.pageforms import sent
from tenants.forms import MetricsForm
from tenants.permissions import Verb, require
from tenants.twins import asked_of, measured_by


@login_required
@require_http_methods(["GET", "POST"])
def source(request: HttpRequest, name: str) -> HttpResponse:
    """The source; it is asked before it is kept."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    row = MetricsSource.objects.filter(cluster=cluster).first()
    form = MetricsForm(sent(request), row=row)
    if shown := copies_of(request, form, lambda: measured_by(cluster, **form.cleaned_data)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            set_metrics_source(cluster=cluster, actor=actor, **form.cleaned_data)
        except RungError as error:
            form.show(error)
        else:
            messages.success(request, _("Saved. It answered as a Prometheus does."))
            return redirect("tenants:metrics", name=cluster.name)
    context = {"cluster": cluster, "row": row, "form": form}
    return render(request, "tenants/metrics.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Ask it no more."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    if copied := copies_of_act(request, asked_of(cluster, "metrics-source", verb="DELETE")):
        return copied
    remove_metrics_source(cluster=cluster, actor=actor)
    messages.success(request, _("Removed. Idle limits do not act on %(name)s now.") % {"name": cluster.name})
    return redirect("tenants:metrics", name=cluster.name)


def _admin(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    return actor
