"""What people do to one workload. Every verb is a POST that answers with the workload's page."""

from collections.abc import Callable
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from portal.core.http import actor_of
from workloads.models import Workload
from workloads.selectors import workload_or_404
from workloads.services import lifecycle

Verb = Callable[..., Workload]


def _act(request: HttpRequest, workload_id: UUID, verb: Verb, words: str, **values: str) -> HttpResponse:
    actor = actor_of(request)
    workload = verb(workload=workload_or_404(actor, workload_id), actor=actor, **values)
    messages.success(request, words % {"name": workload.name, **values})
    return redirect("workloads:detail", workload_id=workload.pk)


@login_required
@require_POST
def stop(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """End its pods; it can be resumed."""
    return _act(request, workload_id, lifecycle.stop, _("Stopping %(name)s. It can be resumed."))


@login_required
@require_POST
def resume(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Ask for its pods again."""
    return _act(request, workload_id, lifecycle.resume, _("Resuming %(name)s."))


@login_required
@require_POST
def delete(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Remove its objects; the history stays."""
    _act(request, workload_id, lifecycle.delete, _("Deleting %(name)s. Submit a clone to have it back."))
    return redirect("workloads:list")


@login_required
@require_POST
def change_priority(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Give it another priority; its preemptibility stays."""
    chosen = request.POST.get("priority", "")[:63]
    words = _("%(name)s has the priority %(priority)s now; its preemptibility stays as it was.")
    return _act(request, workload_id, lifecycle.change_priority, words, priority=chosen)
