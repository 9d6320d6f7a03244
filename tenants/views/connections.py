"""Connecting clusters: how one is reached, whether that works, how it is left again. For platform admins."""

from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.errors import ClusterError
from clusters.flavours import FLAVOURS, flavour_for
from clusters.models import Cluster, ClusterCredential, ClusterState, SyncState
from clusters.rbac import as_yaml
from clusters.services.connection_test import ConnectionReport
from clusters.services.estate import pause, unpause
from clusters.services.leaving import forget_cluster, traces_of, users_of
from clusters.services.registration import change_connection, register_cluster, try_entered, try_stored
from clusters.services.removing import removal_of, request_removal
from portal.core.actors import Actor
from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import Absent, RungError
from portal.core.http import actor_of
from portal.core.pageforms import sent
from portal.core.recipes import Request
from tenants.forms import ConnectForm, ConnectionForm, LeaveForm, ReconnectForm
from tenants.permissions import Verb, require
from tenants.twins import asked_of, connected, left, reconnected

REPORT: Final = "tenants/parts/connection_report.html"


@login_required
@require_http_methods(["GET", "POST"])
def connect(request: HttpRequest) -> HttpResponse:
    """Connect a cluster, or only try what was typed."""
    actor = _admin(request)
    form = ConnectForm(sent(request))
    if request.POST.get("act") == "test":
        return _tried(request, form)
    if shown := copies_of(request, form, partial(_connected, form)):
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
            return redirect("tenants:connection", name=cluster.name)
    context = {"form": form, "flavours": FLAVOURS.values()}
    return render(request, "tenants/connect.html", context, status=422 if form.errors else 200)


@login_required
@require_safe
def rights(request: HttpRequest, flavour: str) -> HttpResponse:
    """The manifests that give Rung its rights, as a file."""
    _admin(request)
    beside = request.GET.get("beside", "")
    if flavour not in FLAVOURS or beside not in {"", *FLAVOURS}:
        raise Absent
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
    form = ReconnectForm(sent(request), row=row) if row else None
    if form and (shown := copies_of(request, form, partial(_reconnected, cluster, form))):
        return shown
    if request.method == "POST" and form is not None and form.is_valid():
        try:
            change_connection(cluster=cluster, source=form.source, actor=actor, adopt=form.cleaned_data["adopt"])
        except RungError as error:
            form.show(error)
        else:
            messages.success(request, _("Saved. %(name)s was reached that way.") % {"name": cluster.name})
            return redirect("tenants:connection", name=cluster.name)
    context = {
        "cluster": cluster,
        "row": row,
        "form": form,
        "rights_for": [(cluster.flavour, flavour_for(cluster.flavour).title)],
        "foreign": cluster.paused_reason.startswith("Another cluster"),
    }
    return render(request, "tenants/connection.html", context, status=422 if form and form.errors else 200)


@login_required
@require_POST
def try_connection(request: HttpRequest, name: str) -> HttpResponse:
    """Ask the cluster now, over the stored connection."""
    _admin(request)
    cluster = get_object_or_404(Cluster, name=name, credential__isnull=False)
    if copied := copies_of_act(request, asked_of(cluster, "connection-test")):
        return copied
    return _report(request, try_stored(cluster), cluster.flavour)


@login_required
@require_POST
def hold(request: HttpRequest, name: str) -> HttpResponse:
    """Pause a cluster, or work with it again."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    paused, takes_over = cluster.state == ClusterState.PAUSED, request.POST.get("adopt") == "yes"
    call = asked_of(cluster, "unpause", {"adopt": takes_over}) if paused else asked_of(cluster, "pause", {})
    if copied := copies_of_act(request, call):
        return copied
    if paused:
        unpause(cluster=cluster, actor=actor, adopt=takes_over)
        messages.success(request, _("Rung works with %(name)s again.") % {"name": cluster.name})
    else:
        pause(cluster=cluster, actor=actor)
        messages.success(request, _("%(name)s is left alone until it is unpaused.") % {"name": cluster.name})
    return redirect("tenants:connection", name=cluster.name)


@login_required
@require_http_methods(["GET", "POST"])
def leave(request: HttpRequest, name: str) -> HttpResponse:
    """What leaving a cluster takes along; then delete what Rung made there, or forget it."""
    actor, cluster = _admin(request), get_object_or_404(Cluster, name=name)
    form, forget = LeaveForm(sent(request), name=cluster.name), request.POST.get("act") == "forget"
    if copied := copies_of_act(request, left(cluster, forget=forget)):
        return copied
    if request.method == "POST" and form.is_valid():
        try:
            return _leave(request, cluster, actor, forget=forget)
        except (RungError, ClusterError) as error:
            form.add_error(None, error.message)
    removal = removal_of(cluster)
    if request.GET.get("part") == "removal":
        return render(request, "tenants/parts/removal.html", {"cluster": cluster, "removal": removal})
    going = removal is not None and removal.state == SyncState.RUNNING
    context = {
        "cluster": cluster,
        "form": form,
        "users": users_of(cluster),
        "removal": removal,
        **({} if going else _traces(cluster)),
    }
    return render(request, "tenants/leave.html", context, status=422 if form.errors else 200)


def _connected(form: ConnectForm) -> Request:
    return connected(form.cleaned_data["name"], form.cleaned_data["flavour"], form.source)


def _reconnected(cluster: Cluster, form: ReconnectForm) -> Request:
    return reconnected(cluster, form.source, adopt=form.cleaned_data["adopt"])


def _admin(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    return actor


def _tried(request: HttpRequest, form: ConnectionForm) -> HttpResponse:
    """Nothing is stored, so the name may still be missing."""
    form.is_valid()
    flavour = str(form.cleaned_data.get("flavour") or "kube")
    try:
        return _report(request, try_entered(form.source, flavour), flavour)
    except RungError as error:
        return render(request, REPORT, {"refusal": error}, status=error.status)


def _report(request: HttpRequest, report: ConnectionReport, flavour: str) -> HttpResponse:
    return render(request, REPORT, {"report": report, "flavour": flavour})


def _say_connected(request: HttpRequest, cluster: Cluster, report: ConnectionReport) -> None:
    if report.lacking:
        text = _("%(name)s is connected and paused: its account lacks rights. Apply them and test again.")
        messages.warning(request, text % {"name": cluster.name})
    else:
        text = _("%(name)s is connected; its first sync runs now. Say next which nodes make its pools.")
        messages.success(request, text % {"name": cluster.name})


def _leave(request: HttpRequest, cluster: Cluster, actor: Actor, *, forget: bool) -> HttpResponse:
    if forget:
        forget_cluster(cluster=cluster, actor=actor)
        messages.success(request, _("%(name)s is forgotten.") % {"name": cluster.name})
        return redirect("tenants:clusters")
    request_removal(cluster=cluster, actor=actor)
    messages.success(request, _("A worker deletes what Rung made there; how far it is stands below."))
    return redirect("tenants:leave", name=cluster.name)


def _traces(cluster: Cluster) -> dict[str, Any]:
    try:
        return {"traces": sorted(traces_of(cluster).items())}
    except ClusterError as error:
        return {"unknown": error.message}
