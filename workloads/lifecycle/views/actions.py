"""Actions on one workload, each a POST, and the question before an action that ends work."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from portal.kit.pages.api_snippets import ApiRequest, action_snippet
from portal.kit.security.request_identity import actor_of
from workloads.lifecycle.serializers.workloads import action_request, priority_change_request
from workloads.lifecycle.services import actions
from workloads.lifecycle.services.actions import cost_of
from workloads.state.models import Workload
from workloads.state.rules import ENDED
from workloads.state.selectors.workloads import workload_or_404


def before_delete(workload: Workload) -> str:
    """`Delete “llm-finetune”? It is running on 8 GPUs and has not saved a checkpoint for 2 h.`"""
    return f"{_('Delete “%(name)s”?') % {'name': workload.name}} {cost_of(workload)}".strip()


def before_stop(workload: Workload) -> str:
    """The same for a stop, which can be taken back by resuming."""
    asked = _("Stop “%(name)s”? You can resume it.") % {"name": workload.name}
    return f"{asked} {cost_of(workload)}".strip()


Verb = Callable[..., Workload]


def _act(
    request: HttpRequest,
    workload_id: UUID,
    verb: Verb,
    twin: Callable[[Workload], ApiRequest],
    words: str,
    *,
    gone: bool = False,
    **values: str,
) -> HttpResponse:
    """Texts where those are asked for. Else it is done, said by `words`, and shown, unless it is gone."""
    actor = actor_of(request)
    workload = workload_or_404(actor, workload_id)
    if copied := action_snippet(request, twin(workload)):
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
    """Give it another priority; its preemptibility stays."""
    chosen = request.POST.get("priority", "")[:63]
    words = _("Priority of %(name)s changed to %(priority)s. Preemptibility did not change.")
    twin = partial(priority_change_request, name=chosen)
    return _act(request, workload_id, actions.change_priority, twin, words, priority=chosen)
