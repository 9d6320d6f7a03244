"""The priorities as a ladder. Editing never saves: it opens a plan."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.core.errors import Conflict, Refused
from portal.core.http import actor_of
from portal.core.pageforms import NOTHING, PageForm, sent
from tenants.permissions import Verb, can
from workloads.forms import PresetForm, PriorityForm, pointers_of
from workloads.models import Plan, Priority
from workloads.permissions import require_dictionary
from workloads.presets import PRESETS
from workloads.selectors import dictionary_rows, sync_state_of_priorities
from workloads.services.plans import plan_preset, plan_priority_change, preset_named
from workloads.views.axis import draw_axis


@login_required
@require_safe
def priorities(request: HttpRequest) -> HttpResponse:
    """The dictionary on its value axis, with the sync state per cluster."""
    rows = dictionary_rows()
    context = {
        "rows": rows,
        "axis": draw_axis([(row.name, row.value, _default_of(row.types)) for row in rows if row.offered]),
        "sync": sync_state_of_priorities(),
        "presets": PRESETS.values(),
        "may_edit": can(actor_of(request), Verb.MANAGE_DICTIONARY),
    }
    return render(request, "workloads/priorities.html", context)


def _default_of(types: Sequence[str]) -> str:
    """The drawing has room for two; the table below names them all."""
    rest = f" +{len(types) - 2}" if len(types) > 2 else ""
    return ", ".join(types[:2]) + rest


@login_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Plan a new entry."""
    actor = actor_of(request)
    require_dictionary(actor)
    form = PriorityForm(sent(request))
    return planned(request, form, lambda: plan_priority_change(change=form.change(), actor=actor), {"adding": True})


@login_required
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """Plan another value, policy or description, or a rename."""
    actor = actor_of(request)
    require_dictionary(actor)
    priority = get_object_or_404(Priority, name=name)
    form = PriorityForm(sent(request), old=priority)
    return planned(
        request, form, lambda: plan_priority_change(change=form.change(), actor=actor), {"priority": priority}
    )


@login_required
@require_POST
def retire(request: HttpRequest, name: str) -> HttpResponse:
    """Plan to take an entry out of use."""
    plan = plan_priority_change(change={"op": "retire", "name": name}, actor=actor_of(request))
    return redirect("workloads:plan", plan_id=plan.pk)


@login_required
@require_http_methods(["GET", "POST"])
def preset(request: HttpRequest, name: str) -> HttpResponse:
    """Plan the import of a preset."""
    actor = actor_of(request)
    require_dictionary(actor)
    chosen = preset_named(name)
    form = PresetForm(sent(request), preset=chosen)
    return planned(
        request,
        form,
        lambda: plan_preset(preset=name, actor=actor, preemptibilities=form.preemptibilities),
        {"preset": chosen},
        pointers_of(chosen.types),
    )


def planned(
    request: HttpRequest,
    form: PageForm,
    plan: Callable[[], Plan],
    context: Mapping[str, Any],
    pointers: Mapping[str, str] = NOTHING,
) -> HttpResponse:
    """The form; once it is sent and stands, its plan. A refusal comes back at its fields with everything typed."""
    if request.method == "POST" and form.is_valid():
        try:
            return redirect("workloads:plan", plan_id=plan().pk)
        except (Refused, Conflict) as error:
            form.show(error, pointers)
    status = 422 if form.errors else 200
    return render(request, "workloads/change.html", {"form": form, **context}, status=status)
