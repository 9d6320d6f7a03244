"""The workload types with their defaults; editing opens a plan."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.core.http import actor_of
from portal.core.pageforms import sent
from tenants.permissions import Verb, can
from workloads.forms import TypeForm
from workloads.permissions import require_dictionary
from workloads.selectors import type_rows, workload_types
from workloads.services.plans import plan_type_change
from workloads.views.dictionary import planned


@login_required
@require_safe
def type_list(request: HttpRequest) -> HttpResponse:
    """Every type with category, defaults and use."""
    context = {
        "rows": type_rows(),
        "withdrawn": type_rows(withdrawn=True),
        "may_edit": can(actor_of(request), Verb.MANAGE_DICTIONARY),
    }
    return render(request, "workloads/types.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, type_id: object) -> HttpResponse:
    """Plan other defaults for a type."""
    actor = actor_of(request)
    require_dictionary(actor)
    row = get_object_or_404(workload_types(), pk=type_id)
    form = TypeForm(sent(request), initial=TypeForm.of(row))
    return planned(
        request, form, lambda: plan_type_change(type=row, change=form.change(), actor=actor), {"workload_type": row}
    )


@login_required
@require_POST
def withdraw(request: HttpRequest, type_id: object) -> HttpResponse:
    """Plan to take no more submissions of a type."""
    actor = actor_of(request)
    require_dictionary(actor)
    row = get_object_or_404(workload_types(), pk=type_id)
    plan = plan_type_change(type=row, change={"op": "withdraw"}, actor=actor)
    return redirect("workloads:plan", plan_id=plan.pk)


@login_required
@require_http_methods(["GET", "POST"])
def offer(request: HttpRequest, type_id: object) -> HttpResponse:
    """Plan to offer a withdrawn type again, with the defaults it had or others."""
    actor = actor_of(request)
    require_dictionary(actor)
    row = get_object_or_404(workload_types(withdrawn=True), pk=type_id)
    form = TypeForm(sent(request), initial=TypeForm.of(row))
    return planned(
        request,
        form,
        lambda: plan_type_change(type=row, change={"op": "offer", **form.change()}, actor=actor),
        {"workload_type": row},
    )
