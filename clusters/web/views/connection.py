"""Pages that connect, test, pause and disconnect a cluster and its Prometheus. For platform admins."""

from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.connection.models import ClusterCredential, MetricsSource
from clusters.connection.rules.rights import as_yaml
from clusters.connection.services.connection_test import ConnectionReport
from clusters.connection.services.registration import (
    change_connection,
    register_cluster,
    remove_metrics_source,
    set_metrics_source,
    try_entered,
    try_stored,
)
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services.inventory import pause, unpause
from clusters.ports.gateway import ClusterError
from clusters.sync.models import SyncState
from clusters.sync.services.disconnect import forget_cluster, managed_counts, references_to, removal_of, request_removal
from clusters.sync.services.reconcile import CHANGED
from clusters.web.forms import ConnectForm, ConnectionForm, DisconnectForm, MetricsForm, ReconnectForm
from clusters.web.serializers.inventory import (
    change_connection_request,
    cluster_action_request,
    connect_cluster_request,
    disconnect_request,
    set_metrics_source_request,
)
from portal.kit.errors import NotFound, RungError
from portal.kit.pages.api_snippets import ApiRequest, action_snippet, form_snippets
from portal.kit.pages.forms import form_data
from portal.kit.pages.htmx import requested_partial
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import require

REPORT: Final = "clusters/connection/parts/report.html"


@login_required
@require_http_methods(["GET", "POST"])
def connect(request: HttpRequest) -> HttpResponse:
    """Connect a cluster, or only try what was typed."""
    actor = _admin(request)
    form = ConnectForm(form_data(request))
    if request.POST.get("act") == "test":
        return _tried(request, form)
    if shown := form_snippets(request, form, partial(_connected, form)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            cluster, report = register_cluster(
                name=form.cleaned_data["name"], flavour=form.cleaned_data["flavour"], source=form.source, actor=actor
            )
        except RungError as error:
            form.show(error)
        else:
            _say_connected(request, cluster, report)
            return redirect("clusters:connection", name=cluster.name)
    context = {"form": form, "flavours": FLAVOURS.values()}
    return render(request, "clusters/connection/connect.html", context, status=422 if form.errors else 200)


@login_required
@require_safe
def rights(request: HttpRequest, flavour: str) -> HttpResponse:
    """The manifests that give Rung its rights, as a file."""
    _admin(request)
    beside = request.GET.get("beside", "")
    if flavour not in FLAVOURS or beside not in {"", *FLAVOURS}:
        raise NotFound
    both = "-".join(filter(None, (flavour, beside)))
    disposition = f'attachment; filename="rung-rights-{both}.yaml"'
    return HttpResponse(
        as_yaml(flavour, beside=beside), content_type="application/yaml", headers={"Content-Disposition": disposition}
    )


@login_required
@require_http_methods(["GET", "POST"])
def connection(request: HttpRequest, name: str) -> HttpResponse:
    """How a cluster is reached; another way is tried before it is kept."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    form = ReconnectForm(form_data(request), row=row) if row else None
    if form and (shown := form_snippets(request, form, partial(_reconnected, cluster, form))):
        return shown
    if request.method == "POST" and form is not None and form.is_valid():
        try:
            change_connection(cluster=cluster, source=form.source, actor=actor, adopt=form.cleaned_data["adopt"])
        except RungError as error:
            form.show(error)
        else:
            messages.success(request, _("Saved. %(name)s is reachable.") % {"name": cluster.name})
            return redirect("clusters:connection", name=cluster.name)
    context = {
        "cluster": cluster,
        "row": row,
        "form": form,
        "rights_for": [(cluster.flavour, flavour_for(cluster.flavour).title)],
        "foreign": cluster.paused_reason == CHANGED,
    }
    return render(request, "clusters/connection/connection.html", context, status=422 if form and form.errors else 200)


@login_required
@require_POST
def try_connection(request: HttpRequest, name: str) -> HttpResponse:
    _admin(request)
    cluster = get_object_or_404(Cluster, name=name, credential__isnull=False)
    if copied := action_snippet(request, cluster_action_request(cluster, "connection-test")):
        return copied
    return _report(request, try_stored(cluster), cluster.flavour)


@login_required
@require_POST
def pause_or_resume(request: HttpRequest, name: str) -> HttpResponse:
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    paused, takes_over = cluster.state == ClusterState.PAUSED, request.POST.get("adopt") == "yes"
    call = (
        cluster_action_request(cluster, "unpause", {"adopt": takes_over})
        if paused
        else cluster_action_request(cluster, "pause", {})
    )
    if copied := action_snippet(request, call):
        return copied
    if paused:
        unpause(cluster=cluster, actor=actor, adopt=takes_over)
        messages.success(request, _("%(name)s resumed.") % {"name": cluster.name})
    else:
        pause(cluster=cluster, actor=actor)
        messages.success(request, _("%(name)s paused.") % {"name": cluster.name})
    return redirect("clusters:connection", name=cluster.name)


@login_required
@require_http_methods(["GET", "POST"])
def disconnect(request: HttpRequest, name: str) -> HttpResponse:
    """What leaving a cluster takes along; then delete what Rung made there, or forget it."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    form, forget = DisconnectForm(form_data(request), name=cluster.name), request.POST.get("act") == "forget"
    if copied := action_snippet(request, disconnect_request(cluster, forget=forget)):
        return copied
    if request.method == "POST" and form.is_valid():
        try:
            return _disconnect(request, cluster, actor, forget=forget)
        except (RungError, ClusterError) as error:
            form.add_error(None, error.message)
    removal = removal_of(cluster)
    if request.GET.get("part") == "removal":
        return render(request, "clusters/connection/parts/removal.html", {"cluster": cluster, "removal": removal})
    going = removal is not None and removal.state == SyncState.RUNNING
    context = {
        "cluster": cluster,
        "form": form,
        "users": references_to(cluster),
        "removal": removal,
        **({} if going else _managed_counts(cluster)),
    }
    return render(request, "clusters/connection/disconnect.html", context, status=422 if form.errors else 200)


def _connected(form: ConnectForm) -> ApiRequest:
    return connect_cluster_request(form.cleaned_data["name"], form.cleaned_data["flavour"], form.source)


def _reconnected(cluster: Cluster, form: ReconnectForm) -> ApiRequest:
    return change_connection_request(cluster, form.source, adopt=form.cleaned_data["adopt"])


def _admin(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    require(actor, Permission.MANAGE_CLUSTERS)
    return actor


def _tried(request: HttpRequest, form: ConnectionForm) -> HttpResponse:
    """Nothing is stored, so the name may still be missing."""
    form.is_valid()
    flavour = str(form.cleaned_data.get("flavour") or "kube")
    try:
        return _report(request, try_entered(form.source, flavour), flavour)
    except RungError as error:
        refused = render(request, REPORT, {"refusal": error}, status=error.status)
        if target := requested_partial(request):
            refused["HX-Retarget"] = f"#{target}"  # else htmx shows nothing of an answer that is an error
        return refused


def _report(request: HttpRequest, report: ConnectionReport, flavour: str) -> HttpResponse:
    return render(request, REPORT, {"report": report, "flavour": flavour})


def _say_connected(request: HttpRequest, cluster: Cluster, report: ConnectionReport) -> None:
    if report.lacking:
        text = _("%(name)s is connected but paused: its account lacks permissions. Apply them and test again.")
        messages.warning(request, text % {"name": cluster.name})
    else:
        text = _("%(name)s connected. The first sync is running. Next, add its node pools.")
        messages.success(request, text % {"name": cluster.name})


def _disconnect(request: HttpRequest, cluster: Cluster, actor: Actor, *, forget: bool) -> HttpResponse:
    if forget:
        forget_cluster(cluster=cluster, actor=actor)
        messages.success(request, _("%(name)s removed.") % {"name": cluster.name})
        return redirect("clusters:list")
    request_removal(cluster=cluster, actor=actor)
    messages.success(request, _("Deleting objects. The progress appears below."))
    return redirect("clusters:leave", name=cluster.name)


def _managed_counts(cluster: Cluster) -> dict[str, Any]:
    try:
        return {"traces": sorted(managed_counts(cluster).items())}
    except ClusterError as error:
        return {"unknown": error.message}


@login_required
@require_http_methods(["GET", "POST"])
def edit_metrics_source(request: HttpRequest, name: str) -> HttpResponse:
    """The source; it is asked before it is kept."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    row = MetricsSource.objects.filter(cluster=cluster).first()
    form = MetricsForm(form_data(request), row=row)
    if shown := form_snippets(request, form, lambda: set_metrics_source_request(cluster, **form.cleaned_data)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            set_metrics_source(cluster=cluster, actor=actor, **form.cleaned_data)
        except RungError as error:
            form.show(error)
        else:
            messages.success(request, _("Saved. The connection test succeeded."))
            return redirect("clusters:metrics", name=cluster.name)
    context = {"cluster": cluster, "row": row, "form": form}
    return render(request, "clusters/connection/metrics_source.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def drop_metrics_source(request: HttpRequest, name: str) -> HttpResponse:
    """Ask it no more."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    if copied := action_snippet(request, cluster_action_request(cluster, "metrics-source", verb="DELETE")):
        return copied
    remove_metrics_source(cluster=cluster, actor=actor)
    messages.success(request, _("Removed. Idle limits no longer have an effect on %(name)s.") % {"name": cluster.name})
    return redirect("clusters:metrics", name=cluster.name)
