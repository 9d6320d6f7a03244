"""One workload: why it is in this state, and what can be done about it."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from clusters.flavours import flavour_for
from portal.core.actors import Actor
from portal.core.htmx import render_page
from portal.core.http import actor_of
from tenants.permissions import Verb, can
from workloads.apply_failures import failed_to_apply, failure_of
from workloads.lifecycle import ENDED, HOLDING, RESUMABLE, STOPPABLE
from workloads.models import DesiredPhase, Priority, Workload
from workloads.permissions import may_manage
from workloads.reprioritising import cautions_of, consequence
from workloads.selectors import (
    containers_of,
    events_of,
    logs,
    pods_of,
    queue_position,
    stories_of,
    timeline,
    told_place,
    why_waiting,
    workload_or_404,
)
from workloads.selectors.applied import applied_of
from workloads.selectors.life import saved_at
from workloads.selectors.protection import protection_of
from workloads.services.limits import end_of
from workloads.services.ways_out import ways_out
from workloads.template_starts import keepable
from workloads.views.manifests import applied_yaml, sent_yaml
from workloads.views.questions import before_delete, before_stop

TABS: Final = {
    "overview": _("Overview"),
    "pods": _("Pods"),
    "events": _("Events"),
    "logs": _("Logs"),
    "yaml": _("YAML"),
}
LOG_LINES: Final = ("200", "1000", "3000")


@login_required
@require_safe
def workload_detail(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """The page; its tabs are in the URL. A foreign one is absent."""
    actor = actor_of(request)
    workload = workload_or_404(actor, workload_id)
    tab = request.GET.get("tab", "")
    tab = tab if tab in TABS else "overview"
    context = {
        "workload": workload,
        "headline": why_waiting(workload),
        "ways_out": ways_out(workload=workload, actor=actor),
        "place": told_place(workload),
        "position": queue_position(workload),
        "tab": tab,
        "tabs": TABS.items(),
        "failure": failure_of(workload),
        "live": workload.phase not in ENDED and workload.deleted_at is None,
        **_actions(workload, actor),
        **_CONTENTS[tab](request, workload, actor),
    }
    return render_page(request, "workloads/detail.html", context, parts=("workload",))


def _actions(workload: Workload, actor: Actor) -> dict[str, Any]:
    """Which verbs are offered; the services decide."""
    mine = may_manage(actor, workload) and workload.desired_phase != DesiredPhase.DELETED
    running = workload.desired_phase == DesiredPhase.RUNNING
    return {
        "may_delete": mine,
        "may_stop": mine and running and workload.phase in STOPPABLE,
        "may_resume": mine and not running and workload.phase in RESUMABLE,
        "may_retry": mine and failed_to_apply(workload),
        "may_keep": _may_keep(workload, actor),
        "questions": {"stop": before_stop(workload), "delete": before_delete(workload)},
        "may_reprioritise": mine and not workload.type.fixed and workload.phase not in ENDED,
    }


def _may_keep(workload: Workload, actor: Actor) -> bool:
    """As a template in its project."""
    said = keepable(workload.type.name, workload.raw) is not None
    return said and can(actor, Verb.SUBMIT, project=workload.project)


def _overview(_request: HttpRequest, workload: Workload, actor: Actor) -> dict[str, Any]:
    offered = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True).order_by("-value")
    return {
        "timeline": timeline(workload),
        "stories": stories_of(workload, actor),
        "priorities": offered,
        "consequence": consequence(workload),
        "cautions": cautions_of(workload),
        "end": end_of(workload),
        "protection": protection_of(workload),
        "checkpoint": saved_at(workload) if workload.phase in HOLDING else None,
    }


def _pods(_request: HttpRequest, workload: Workload, _actor: Actor) -> dict[str, Any]:
    flavour = flavour_for(workload.project.cluster.flavour)
    return {"pods": pods_of(workload), "by_class": flavour.title if flavour.traits.counts_classes else ""}


def _events(_request: HttpRequest, workload: Workload, _actor: Actor) -> dict[str, Any]:
    return {"events": events_of(workload)}


def _logs(request: HttpRequest, workload: Workload, _actor: Actor) -> dict[str, Any]:
    """One container of one pod; the page asks for it again every few seconds while the workload lives."""
    pods = {pod.name: pod for pod in pods_of(workload)}
    if not pods:
        return {}
    pod = pods.get(request.GET.get("pod", "")) or next(iter(pods.values()))
    containers = containers_of(workload, pod)
    container = _one_of(request.GET.get("container", ""), containers)
    count = int(_one_of(request.GET.get("lines", ""), LOG_LINES))
    return {
        "pod_names": list(pods),
        "pod": pod.name,
        "containers": containers,
        "container": container,
        "counts": LOG_LINES,
        "count": str(count),
        "log": logs(workload, pod.name, container=container if len(containers) > 1 else "", lines=count),
    }


def _one_of(wanted: str, known: Sequence[str]) -> str:
    return wanted if wanted in known else next(iter(known), "")


def _yaml(_request: HttpRequest, workload: Workload, _actor: Actor) -> dict[str, Any]:
    applied = applied_of(workload)
    return {"sent": sent_yaml(workload), "applied": applied_yaml(applied), "objects": applied}


_CONTENTS: Final = {"overview": _overview, "pods": _pods, "events": _events, "logs": _logs, "yaml": _yaml}
