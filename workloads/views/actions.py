"""What people do to one workload. Every verb is a POST that answers with the workload's page."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from portal.core.copying import asks_for_copies, copies_of_act, copies_of_acts
from portal.core.errors import BadRequest
from portal.core.http import actor_of
from portal.core.recipes import Request
from workloads.forms import WayOutForm
from workloads.lifecycle import ENDED
from workloads.models import Workload
from workloads.selectors import workload_or_404
from workloads.services import lifecycle
from workloads.services.ways_out import replace_waiting, replacement
from workloads.submit_recipes import as_manifest
from workloads.twins import act_on, other_priority
from workloads.views.copies import home_of

Verb = Callable[..., Workload]


def _act(
    request: HttpRequest,
    workload_id: UUID,
    verb: Verb,
    twin: Callable[[Workload], Request],
    words: str,
    *,
    gone: bool = False,
    **values: str,
) -> HttpResponse:
    """Texts where those are asked for. Else it is done, said by `words`, and shown, unless it is gone."""
    actor = actor_of(request)
    workload = workload_or_404(actor, workload_id)
    if copied := copies_of_act(request, twin(workload)):
        return copied
    verb(workload=workload, actor=actor, **values)
    if workload.phase in ENDED:
        words = _("%(name)s has ended already.")
    messages.success(request, words % {"name": workload.name, **values})
    return redirect("workloads:list") if gone else redirect("workloads:detail", workload_id=workload.pk)


@login_required
@require_POST
def stop(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """End its pods; it can be resumed."""
    words = _("Stopping %(name)s. It can be resumed.")
    return _act(request, workload_id, lifecycle.stop, partial(act_on, action="suspend"), words)


@login_required
@require_POST
def resume(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Ask for its pods again."""
    return _act(request, workload_id, lifecycle.resume, partial(act_on, action="resume"), _("Resuming %(name)s."))


@login_required
@require_POST
def retry(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Hand it to its cluster again after that failed."""
    words = _("Retrying %(name)s: a worker hands it to its cluster again.")
    return _act(request, workload_id, lifecycle.retry, partial(act_on, action="retry"), words)


@login_required
@require_POST
def delete(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Remove its objects; the history stays."""
    words = _("Deleting %(name)s. Submit a clone to have it back.")
    return _act(request, workload_id, lifecycle.delete, partial(act_on, action="delete"), words, gone=True)


@login_required
@require_POST
def take_way_out(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Put one with another preemptibility, pool or size in the place of a workload that waits."""
    actor, form = actor_of(request), WayOutForm(request.POST)
    workload = workload_or_404(actor, workload_id)
    if not form.is_valid():
        raise BadRequest(
            "Choose what is to be another: preemptibility, node_pool, gpus, cpu or memory.", code="bad_way"
        )
    way = form.way
    if asks_for_copies(request):
        spec = replacement(workload=workload, way=way, actor=actor)
        calls = [as_manifest(spec, home_of(workload.project)), act_on(workload, "delete")]
        return copies_of_acts(request, calls)
    made = replace_waiting(workload=workload, way=way, actor=actor)
    words = _("%(made)s takes the place of %(name)s, which is deleted. Its history stays.")
    messages.success(request, words % {"made": made.name, "name": workload.name})
    return redirect("workloads:detail", workload_id=made.pk)


@login_required
@require_POST
def change_priority(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Give it another priority; its preemptibility stays."""
    chosen = request.POST.get("priority", "")[:63]
    words = _("%(name)s has the priority %(priority)s now; its preemptibility stays as it was.")
    twin = partial(other_priority, name=chosen)
    return _act(request, workload_id, lifecycle.change_priority, twin, words, priority=chosen)
