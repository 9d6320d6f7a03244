"""Policies: who set what where, what holds for a project after all, and the form whose Save opens a plan."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.pages.api_snippets import ApiRequest as Call
from portal.kit.pages.api_snippets import action_snippet, form_snippets
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import access_for
from workloads.plans.services.plans import plan_page
from workloads.policies.forms import KINDS, POINTERS, EffectiveForm, PolicyForm
from workloads.policies.models import Policy
from workloads.policies.rules.merge import PolicyKind
from workloads.policies.selectors import (
    effective_rows,
    manageable_scopes,
    policy_rows,
    require_scope,
    visible_policies,
)
from workloads.policies.serializers import policy_delete_request, policy_put_request
from workloads.policies.services import PolicyTarget, policy_change


@login_required
@require_safe
def policies(request: HttpRequest) -> HttpResponse:
    """Every policy the reader may see, and what holds for the chosen project."""
    actor = actor_of(request)
    form = EffectiveForm(request.GET if "project" in request.GET else None, projects=access_for(actor).projects())
    if suggested := suggestions(request, form):
        return suggested
    chosen = form.chosen
    with cached_reads():
        rows, effective = policy_rows(actor), effective_rows(chosen) if chosen else []
    context = {
        "rows": rows,
        "kinds": KINDS,
        "form": form,
        "project": chosen,
        "effective": effective,
        "may_add": bool(manageable_scopes(actor)),
    }
    return render(request, "workloads/policies/policies.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Set a policy where there is none; one that is there already is opened instead."""
    actor = actor_of(request)
    scopes = manageable_scopes(actor)
    if not scopes:
        require_scope(actor, None)
    form = PolicyForm(form_data(request), scopes=scopes)
    if shown := suggestions(request, form) or form_snippets(request, form, lambda: _api_request(form, _chosen(form))):
        return shown
    if request.method == "POST" and form.is_valid():
        target = _chosen(form)
        if there := Policy.objects.filter(kind=str(target.kind), **target.where).first():
            messages.info(request, _("This policy already exists. You can edit it here."))
            return redirect("workloads:policy", policy_id=there.pk)
        return _set(request, form, target, None)
    return _form(request, form, None)


@login_required
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, policy_id: UUID) -> HttpResponse:
    actor = actor_of(request)
    row = get_object_or_404(visible_policies(actor), pk=policy_id)
    target = _target(row)
    require_scope(actor, target.owner)
    form = PolicyForm(form_data(request), old=row)
    if shown := form_snippets(request, form, lambda: _api_request(form, target)):
        return shown
    if request.method == "POST" and form.is_valid():
        return _set(request, form, target, row)
    return _form(request, form, row)


@login_required
@require_POST
def lift(request: HttpRequest, policy_id: UUID) -> HttpResponse:
    actor = actor_of(request)
    target = _target(get_object_or_404(visible_policies(actor), pk=policy_id))
    if copied := action_snippet(request, policy_delete_request(target.kind, target.owner)):
        return copied
    return redirect(plan_page("policy", policy_change(target, "", None), actor))


def _set(request: HttpRequest, form: PolicyForm, target: PolicyTarget, row: Policy | None) -> HttpResponse:
    try:
        if row:
            form.check_changed()
        name = form.cleaned_data["name"]
        change = policy_change(target, name, form.document(target.kind))
        return redirect(plan_page("policy", change, actor_of(request)))
    except (ValidationFailed, Conflict) as error:
        form.show(error, POINTERS)
        return _form(request, form, row)


def _form(request: HttpRequest, form: PolicyForm, row: Policy | None) -> HttpResponse:
    context = {"form": form, "policy": row, "title": _target(row).title if row else ""}
    return render(request, "workloads/policies/policy.html", context, status=422 if form.errors else 200)


def _api_request(form: PolicyForm, target: PolicyTarget) -> Call:
    return policy_put_request(target.kind, target.owner, form.cleaned_data["name"], form.document(target.kind))


def _chosen(form: PolicyForm) -> PolicyTarget:
    return PolicyTarget(PolicyKind(form.cleaned_data["kind"]), form.owner)


def _target(row: Policy) -> PolicyTarget:
    return PolicyTarget(PolicyKind(row.kind), row.owner)
