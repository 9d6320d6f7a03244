"""Pages of change plans: the list, one plan with its effect, and what is done with it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models.fields.json import KT
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.pages.api_snippets import portal_address, snippets_for
from portal.kit.pages.forms import form_data, search_text
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, require
from tenants.quotas.forms import ReasonForm
from tenants.quotas.views import QuotaTable, changed_fields, read_table, render_table
from workloads.plans.models import Plan
from workloads.plans.selectors import (
    GROUP_WORDS,
    LATER,
    STATES,
    UNAPPROVED,
    approval_departments,
    awaits_approval,
    counted,
    in_state,
    kind_named,
    object_counts,
    plan_groups,
    plan_reclaims,
    plan_syncs,
    state_of,
    subject_of,
    visible_plans,
)
from workloads.plans.services.plans import (
    apply_plan,
    approve_plan,
    basis_conflict,
    discard_plan,
    plan_again,
    plan_change,
    plan_inverse,
    plan_page,
)

PAGE_SIZE: Final = 50
MARKS: Final = {
    "+": _lazy("created"),
    "~": _lazy("changed"),
    "±": _lazy("replaced"),
    "-": _lazy("deleted"),
    LATER: _lazy("deleted later"),
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
    "priority_cap": _lazy("GPU cap of a priority"),
    "time_limit": _lazy("Time limit"),
    "idle_limit": _lazy("Idle limit"),
    "min_runtime": _lazy("Minimum runtime"),
    "enforce_deserved": _lazy("Enforcement of deserved quota"),
    "defer_preemptors": _lazy("Deferral of preemptors"),
    "policy": _lazy("Policy"),
    "node_pool": _lazy("Node pool"),
    "scheduler": _lazy("Scheduler"),
    "approval": _lazy("Approval of plans"),
    "quota_request": _lazy("Quota request"),
}
OWN_GROUPS: Final = frozenset(
    {"priority", "type", "preset", "project_quota", "department_quota", "quotas", "quota_request"}
)
"""Kinds whose groups of workloads have headings of their own."""
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
EVICTS_WORDS: Final = {"all": _lazy("yes"), "preemptible": _lazy("preemptible")}
STATE_WORDS: Final = {
    "open": _lazy("Open"),
    UNAPPROVED: _lazy("Needs approval"),
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
    plans = plans.annotate(reason=KT("change__reason"), sentence=KT("effect__sentence"))
    if state in STATES:
        plans = in_state(plans, state)
    page = page_of(plans, column="-created_at", after=request.GET.get("after", ""), size=PAGE_SIZE)
    required = approval_departments()
    rows = [(plan, state_of(plan), awaits_approval(plan, required)) for plan in page.rows]
    context = {"page": page, "rows": rows, "state": state, "states": STATE_WORDS, "kinds": KIND_WORDS}
    held = access_for(actor_of(request))
    context["may_require"] = held.can(Permission.MANAGE_DICTIONARY) or held.holds(Permission.MANAGE_DEPARTMENT)
    return render_page(request, "workloads/plans/plans.html", context)


@login_required
@require_safe
def plan_detail(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """What the plan would do, or did."""
    plan = _plan_or_404(request, plan_id)
    state, kind = state_of(plan), kind_named(plan.kind)
    outdated = basis_conflict(plan) if state == "open" else None
    context = {
        "plan": plan,
        "effect": {**plan.effect, "workloads": plan_groups(plan)},
        "state": state,
        "is_open": state == "open",
        "outdated": outdated.message if outdated else "",
        "marks": MARKS,
        "object_counts": object_counts(plan.effect),
        "evicts_words": EVICTS_WORDS,
        "quota_labels": QUOTA_LABELS,
        "recipes": snippets_for(portal_address(request), kind.requests(plan)) if state == "open" else [],
        "rollbacks": plan.rollbacks.all(),
        "groups": _groups(plan),
        "reclaims": plan_reclaims(plan, actor_of(request)),
        "syncs": plan_syncs(plan),
        "awaits": awaits_approval(plan),
        "is_author": plan.author == subject_of(actor_of(request)),
    }
    return render_page(request, "workloads/plans/plan.html", context)


def _groups(plan: Plan) -> list[tuple[str, Any]]:
    """Groups of workloads of a plan of a single setting, each with a heading."""
    if plan.kind in OWN_GROUPS:
        return []
    groups = plan_groups(plan)
    return [
        (f"{counted(group['count'], noun)} {one if group['count'] == 1 else many}", group)
        for name, (noun, one, many) in GROUP_WORDS.items()
        if (group := groups.get(name)) and group["count"]
    ]


PlanView = Callable[[HttpRequest, UUID], HttpResponse]


def _refused_on_its_page(view: PlanView) -> PlanView:
    """Show on the plan's page why the plan could not be changed."""

    @wraps(view)
    def guarded(request: HttpRequest, plan_id: UUID) -> HttpResponse:
        try:
            return view(request, plan_id)
        except (Conflict, ValidationFailed) as error:
            messages.error(request, error.message)
            return redirect("workloads:plan", plan_id=plan_id)

    return guarded


@login_required
@require_POST
@_refused_on_its_page
def plan_approve(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Approve the plan of another admin; it can be applied then."""
    plan = approve_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    messages.success(request, _("Approved: %(what)s. It can be applied now.") % {"what": plan.title})
    return redirect("workloads:plan", plan_id=plan.pk)


@login_required
@require_http_methods(["GET", "POST"])
def plan_approval(request: HttpRequest) -> HttpResponse:
    """Where a second admin has to approve plans, a page of departments at a time; `q` is a part of their name.

    Sent, the plan that changes it.
    """
    actor = actor_of(request)
    held = access_for(actor)
    departments = held.departments(Permission.MANAGE_DEPARTMENT).select_related("cluster")
    everywhere = held.can(Permission.MANAGE_DICTIONARY)
    if not (everywhere or departments.exists()):
        require(actor, Permission.MANAGE_DICTIONARY)
    if request.method == "POST":
        change: dict[str, Any] = {"required": request.POST.get("required") == "on"}
        if key := request.POST.get("department", ""):
            found = get_object_or_404(departments, pk=key if key.isascii() and key.isdecimal() else 0)
            change |= {"department": found.name, "cluster": found.cluster.name}
        return redirect(plan_page("approval", change, actor))
    search, after = search_text(request), request.GET.get("after", "")
    page = page_of(departments.filter(name__icontains=search), column="name", after=after, size=PAGE_SIZE)
    required = approval_departments()
    rows = [(None, None in required)] if everywhere and not (search or after) else []
    context = {"page": page, "search": search, "rows": [*rows, *((each, each.pk in required) for each in page.rows)]}
    return render_page(request, "workloads/plans/approval.html", context, parts=("scopes",))


@login_required
@require_POST
@_refused_on_its_page
def plan_apply(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Make the change; the plan's page then offers the rollback."""
    plan = apply_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    done = _("Applied: %(what)s.") % {"what": plan.title}
    messages.success(request, f"{done} {_('The clusters are being updated.')}" if plan.effect["objects"] else done)
    return redirect(kind_named(plan.kind).page)


@login_required
@require_POST
@_refused_on_its_page
def plan_discard(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Close the plan; nothing changes."""
    plan = discard_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    messages.success(request, _("Discarded: %(what)s. Nothing was changed.") % {"what": plan.title})
    return redirect(kind_named(plan.kind).page)


@login_required
@require_POST
@_refused_on_its_page
def plan_roll_back(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Open the plan of the inverse change."""
    back = plan_inverse(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    return redirect("workloads:plan", plan_id=back.pk)


@login_required
@require_POST
@_refused_on_its_page
def plan_recreate(request: HttpRequest, plan_id: UUID) -> HttpResponse:
    """Open a new plan of the same change, computed on the values of now."""
    fresh = plan_again(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
    return redirect("workloads:plan", plan_id=fresh.pk)


@login_required
@require_http_methods(["GET", "POST"])
def quotas(request: HttpRequest) -> HttpResponse:
    """Quotas of a node pool. Sent, what the edits would do; saved, the plan of them, or the cells that are refused."""
    pools, table = read_table(request)
    saves = request.POST.get("do") == "save"
    reason = ReasonForm(form_data(request) if saves else None)
    if table and saves and (plan := _plan_of_quotas(request, table, reason)):
        return redirect("workloads:plan", plan_id=plan.pk)
    refused = table is not None and (table.invalid or reason.errors)
    return render_table(request, pools, table, reason, status=422 if refused else 200)


def _plan_of_quotas(request: HttpRequest, table: QuotaTable, reason: ReasonForm) -> Plan | None:
    """None where a cell or the reason is refused, or where nothing is edited; the forms then say so."""
    edits = table.edits
    if not (edits or table.invalid):
        reason.add_error(None, _("No cell was edited."))
    if table.invalid or not reason.is_valid():
        return None
    place = {"cluster": table.pool.cluster.name, "pool": table.pool.name}
    change = {
        "quotas": [
            {key.kind: table.quotas.owners[key].name, **place, "values": changed_fields(table.quotas, key, values)}
            for key, values in edits.items()
        ],
        "reason": reason.cleaned_data["reason"],
    }
    try:
        return plan_change(kind="quotas", change=change, actor=actor_of(request))
    except (ValidationFailed, Conflict) as error:
        table.refuse(list(edits), error, reason)
        return None


def _plan_or_404(request: HttpRequest, plan_id: UUID) -> Plan:
    return get_object_or_404(visible_plans(actor_of(request)), pk=plan_id)
