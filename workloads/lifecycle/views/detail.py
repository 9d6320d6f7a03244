"""Page of one workload: why it is in this state, its pods, events, logs, YAML; and the actions on it, each a POST."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import yaml
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from clusters.flavours.registry import flavour_for
from portal.kit.pages.api_snippets import ApiRequest, action_snippet, wants_snippets
from portal.kit.pages.htmx import render_page
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import can
from workloads.dictionary.models import Priority
from workloads.forecast.selectors.accuracy import CALIBRATION_WEEKS, start_calibration
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.runtime_rules import protection_of
from workloads.forecast.selectors.waiting import (
    holders,
    pool_rank,
    project_names,
    queue_place,
    queue_position,
    queue_rank,
    why_waiting,
)
from workloads.forecast.services.start_estimates import shown_estimate
from workloads.lifecycle.selectors.workloads import (
    AppliedObjects,
    applied_objects,
    priority_change_effect,
    warnings_for,
)
from workloads.lifecycle.serializers.workloads import action_request, priority_change_request
from workloads.lifecycle.services import actions
from workloads.lifecycle.services.actions import cost_of
from workloads.lifecycle.services.run_limits import run_end
from workloads.preemption.selectors import eviction_timelines, name_preemptors
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import ENDED, HOLDING, RESUMABLE, STOPPABLE
from workloads.state.selectors.usage import last_checkpoint_at
from workloads.state.selectors.workloads import (
    containers_of,
    entries_of,
    events_of,
    failed_to_apply,
    failure_of,
    logs,
    may_manage,
    pods_of,
    timeline,
    workload_or_404,
)
from workloads.workload_templates.rules import keepable


def before_delete(workload: Workload) -> str:
    """`Delete “llm-finetune”? It is running on 8 GPUs and has not saved a checkpoint for 2 h.`"""
    return f"{_('Delete “%(name)s”?') % {'name': workload.name}} {cost_of(workload)}".strip()


def before_stop(workload: Workload) -> str:
    """The same for a stop, which can be taken back by resuming."""
    question = _("Stop “%(name)s”? You can resume it.") % {"name": workload.name}
    return f"{question} {cost_of(workload)}".strip()


Verb = Callable[..., Workload]


def _act(
    request: HttpRequest,
    workload_id: UUID,
    verb: Verb,
    request_of: Callable[[Workload], ApiRequest],
    words: str,
    *,
    gone: bool = False,
    **values: str,
) -> HttpResponse:
    """Texts where those are asked for. Else it is done, said by `words`, and shown, unless it is gone."""
    actor = actor_of(request)
    workload = workload_or_404(actor, workload_id)
    if copied := action_snippet(request, request_of(workload)):
        return copied
    verb(workload=workload, actor=actor, **values)
    if workload.phase in ENDED:
        words = _("%(name)s has already ended.")
    messages.success(request, words % {"name": workload.name, **values})
    return redirect("workloads:list") if gone else redirect("workloads:detail", workload_id=workload.pk)


@login_required
@require_POST
def stop(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """End its pods; it can be resumed."""
    words = _("Stopping %(name)s. You can resume it.")
    return _act(request, workload_id, actions.stop, partial(action_request, action="suspend"), words)


@login_required
@require_POST
def resume(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    return _act(request, workload_id, actions.resume, partial(action_request, action="resume"), _("Resuming %(name)s."))


@login_required
@require_POST
def retry(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Hand it to its cluster again after that failed."""
    words = _("Retrying %(name)s.")
    return _act(request, workload_id, actions.retry, partial(action_request, action="retry"), words)


@login_required
@require_POST
def delete(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Remove its objects; the history stays."""
    words = _("Deleting %(name)s.")
    return _act(request, workload_id, actions.delete, partial(action_request, action="delete"), words, gone=True)


@login_required
@require_POST
def change_priority(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Give it another priority; its preemptibility stays. What would evict others at once is confirmed first."""
    chosen = request.POST.get("priority", "")[:63]
    if not (request.POST.get("sure") or wants_snippets(request)):
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        found = actions.forecast_of_priority(workload=workload, priority=chosen, actor=actor)
        if found and found.victims:
            context = {"workload": workload, "priority": chosen, "forecast": found}
            return render(request, "workloads/lifecycle/priority_confirm.html", context)
    words = _("Priority of %(name)s changed to %(priority)s. Preemptibility did not change.")
    request_of = partial(priority_change_request, name=chosen)
    return _act(request, workload_id, actions.change_priority, request_of, words, priority=chosen)


def sent_yaml(workload: Workload) -> str:
    """What was sent, or the rebuilt manifest where a form was."""
    raw = workload.raw
    if isinstance(raw.get("text"), str):
        return str(raw["text"])
    return as_yaml(raw.get("manifest") or raw or workload.spec["manifest"])


def applied_yaml(applied: AppliedObjects) -> str:
    """The objects that Rung keeps on the cluster for a workload."""
    return "---\n".join(map(as_yaml, applied.manifests))


def as_yaml(value: object) -> str:
    """Plain YAML in the order of writing."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text


TABS: Final = {
    "overview": gettext_lazy("Overview"),
    "pods": gettext_lazy("Pods"),
    "events": gettext_lazy("Events"),
    "logs": gettext_lazy("Logs"),
    "yaml": gettext_lazy("YAML"),
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
        "ways_out": waiting_alternatives(workload=workload, actor=actor),
        "place": queue_place(workload),
        "position": queue_position(workload),
        "waits": workload.phase == Phase.PENDING and workload.desired_phase == DesiredPhase.RUNNING,
        "tab": tab,
        "tabs": TABS.items(),
        "failure": failure_of(workload),
        "live": workload.phase not in ENDED and workload.deleted_at is None,
        **_actions(workload, actor),
        **_CONTENTS[tab](request, workload, actor),
    }
    return render_page(request, "workloads/lifecycle/detail.html", context, parts=("workload",))


@login_required
@require_safe
def waiting_card(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Who holds the GPUs, and when it will probably start; empty where it does not wait. The page loads it later."""
    actor = actor_of(request)
    workload = workload_or_404(actor, workload_id)
    found = shown_estimate(workload)
    context = {
        "workload": workload,
        "waits": queue_rank(workload),
        "pool_rank": pool_rank(workload),
        "holders": holders(workload, actor),
        "estimate": found,
        "basis": found.basis.text(project_names(actor, workload.project.cluster)) if found else "",
        "flavour": flavour_for(workload.project.cluster.flavour).title,
        "calibration": start_calibration(workload.project.cluster, weeks=CALIBRATION_WEEKS),
    }
    return render(request, "workloads/lifecycle/parts/waiting.html", context)


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
    keepable_spec = keepable(workload.type.name, workload.raw) is not None
    return keepable_spec and can(actor, Permission.SUBMIT, project=workload.project)


def _overview(_request: HttpRequest, workload: Workload, actor: Actor) -> dict[str, Any]:
    offered = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True).order_by("-value")
    entries = entries_of(workload)
    name_preemptors(entries, actor)
    return {
        "timeline": timeline(entries),
        "stories": eviction_timelines(workload, actor),
        "priorities": offered,
        "consequence": priority_change_effect(workload),
        "cautions": warnings_for(workload),
        "end": run_end(workload),
        "protection": protection_of(workload),
        "checkpoint": last_checkpoint_at(workload) if workload.phase in HOLDING else None,
    }


def _pods(_request: HttpRequest, workload: Workload, actor: Actor) -> dict[str, Any]:
    flavour = flavour_for(workload.project.cluster.flavour)
    return {"pods": pods_of(workload, actor), "by_class": flavour.title if flavour.traits.counts_classes else ""}


def _events(_request: HttpRequest, workload: Workload, actor: Actor) -> dict[str, Any]:
    return {"events": events_of(workload, actor)}


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
    applied = applied_objects(workload)
    return {"sent": sent_yaml(workload), "applied": applied_yaml(applied), "objects": applied}


_CONTENTS: Final = {"overview": _overview, "pods": _pods, "events": _events, "logs": _logs, "yaml": _yaml}
