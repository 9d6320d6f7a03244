"""Pages of change plans: the list, one plan with its effect, and what is done with it."""

from typing import Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.views.decorators.http import require_POST, require_safe

from portal.kit.db.keyset_pagination import page_of
from portal.kit.pages.api_snippets import portal_address, snippets_for
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from workloads.plans.models import Plan
from workloads.plans.selectors import STATES, in_state, kind_named, state_of, visible_plans
from workloads.plans.services.plans import apply_plan, discard_plan, roll_back

PAGE_SIZE: Final = 50
MARKS: Final = {
    "+": _lazy("created"),
    "~": _lazy("changed"),
    "±": _lazy("replaced"),
    "-": _lazy("deleted"),
    "!": _lazy("conflict with a foreign object"),
    "=": _lazy("skipped: a newer version exists"),
}
KIND_WORDS: Final = {
    "priority": _lazy("Priority"),
    "type": _lazy("Workload type"),
    "preset": _lazy("Preset"),
    "project_quota": _lazy("Project quota"),
    "department_quota": _lazy("Department quota"),
    "quotas": _lazy("Quotas"),
}
QUOTA_LABELS: Final = {
    "gpu_deserved": _lazy("GPUs deserved"),
    "gpu_limit": _lazy("GPU limit"),
    "cpu_deserved": _lazy("CPU deserved"),
    "cpu_limit": _lazy("CPU limit"),
    "memory_deserved": _lazy("Memory deserved"),
    "memory_limit": _lazy("Memory limit"),
    "over_quota_weight": _lazy("Over-quota weight"),
    "cpu_weight": _lazy("Over-quota weight of CPU"),
    "memory_weight": _lazy("Over-quota weight of memory"),
    "rank": _lazy("Rank"),
}
STATE_WORDS: Final = {
    "open": _lazy("Open"),
    "expired": _lazy("Expired"),
    "applied": _lazy("Applied"),
    "discarded": _lazy("Discarded"),
}


@login_required
@require_safe
def plan_list(request: HttpRequest) -> HttpResponse:
    """The plans that I may apply, newest first; state and page in the URL."""
    state = request.GET.get("state", "")
    plans = visible_plans(actor_of(request)).defer("effect", "change", "undo", "outcome")
    if state in STATES:
        plans = in_state(plans, state)
    page = page_of(plans, column="-created_at", after=request.GET.get("after", ""), size=PAGE_SIZE)
    rows = [(plan, state_of(plan)) for plan in page.rows]
    context = {"page": page, "rows": rows, "state": state, "states": STATE_WORDS, "kinds": KIND_WORDS}
    return render_page(request, "workloads/plans/plans.html", context)


@login_required
@require_safe
def plan_detail(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """What the plan would do, or did."""
    plan = _plan_or_404(request, plan_id)
    state, kind = state_of(plan), kind_named(plan.kind)
    context = {
        "plan": plan,
        "effect": plan.effect,
        "state": state,
        "is_open": state == "open",
        "marks": MARKS,
        "quota_labels": QUOTA_LABELS,
        "recipes": snippets_for(portal_address(request), kind.requests(plan)) if state == "open" else [],
        "rollbacks": plan.rollbacks.all(),
    }
    return render_page(request, "workloads/plans/plan.html", context)


@login_required
@require_POST
def plan_apply(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Make the change; the plan's page then offers the rollback."""
    plan = apply_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    messages.success(request, _("Applied: %(what)s. The clusters are being updated.") % {"what": plan.title})
    return redirect(kind_named(plan.kind).page)


@login_required
@require_POST
def plan_discard(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Close the plan; nothing changes."""
    plan = discard_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    messages.success(request, _("Discarded: %(what)s. Nothing was changed.") % {"what": plan.title})
    return redirect(kind_named(plan.kind).page)


@login_required
@require_POST
def plan_roll_back(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Open the plan of the inverse change."""
    back = roll_back(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    return redirect("workloads:plan", plan_id=back.pk)


def _plan_or_404(request: HttpRequest, plan_id: UUID) -> Plan:
    return get_object_or_404(visible_plans(actor_of(request)), pk=plan_id)
