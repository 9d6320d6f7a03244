"""A plan: what a change would do, then apply or discard."""

from typing import Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.views.decorators.http import require_POST, require_safe

from portal.core.http import actor_of
from workloads.models import Plan, PlanState
from workloads.permissions import require_dictionary
from workloads.services.plans import apply_plan, discard_plan
from workloads.views.copies import plan_recipes

MARKS: Final = {
    "+": _lazy("created"),
    "~": _lazy("changed"),
    "±": _lazy("deleted and created anew"),
    "-": _lazy("deleted"),
    "!": _lazy("in conflict with a foreign object"),
    "=": _lazy("left to a newer writer"),
}


@login_required
@require_safe
def show(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """The plan with its effect."""
    require_dictionary(actor_of(request))
    plan = get_object_or_404(Plan, pk=plan_id)
    is_open = plan.state == PlanState.OPEN and plan.expires_at > timezone.now()
    context = {"plan": plan, "effect": plan.effect, "is_open": is_open, "marks": MARKS}
    context["recipes"] = plan_recipes(request, plan) if is_open else []
    return render(request, "workloads/plan.html", context)


@login_required
@require_POST
def apply(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Do what the plan shows."""
    actor = actor_of(request)
    require_dictionary(actor)
    plan = apply_plan(plan=get_object_or_404(Plan, pk=plan_id), actor=actor)
    messages.success(request, _("Applied: %(what)s. Workers bring it to the clusters now.") % {"what": plan.title})
    return redirect("workloads:types" if plan.kind == "type" else "workloads:priorities")


@login_required
@require_POST
def discard(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Lay the plan aside; nothing changes."""
    actor = actor_of(request)
    require_dictionary(actor)
    plan = discard_plan(plan=get_object_or_404(Plan, pk=plan_id), actor=actor)
    messages.success(request, _("Discarded: %(what)s. Nothing was changed.") % {"what": plan.title})
    return redirect("workloads:types" if plan.kind == "type" else "workloads:priorities")
