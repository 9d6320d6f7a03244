"""Policies: who set what where, what holds for a project after all, and the form to set one."""

from typing import Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.core.actors import Actor
from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import Conflict, Refused
from portal.core.http import actor_of
from portal.core.marks import steady
from portal.core.pageforms import sent
from portal.core.recipes import Request as Call
from tenants.permissions import standing_of
from workloads import twins
from workloads.models import Policy
from workloads.permissions import require_scope
from workloads.policy_forms import KINDS, POINTERS, PolicyForm
from workloads.policy_rules import Kind
from workloads.selectors.policies import effective_rows, policy_rows, visible_policies
from workloads.selectors.scopes import chosen_owner, manageable_owners
from workloads.services.policies import Target, lift_policy, set_policy

LIST: Final = "workloads:policies"


@login_required
@require_safe
def policies(request: HttpRequest) -> HttpResponse:
    """Every policy the reader may see, and what holds for the chosen project."""
    actor = actor_of(request)
    projects = standing_of(actor).projects().select_related("cluster", "department").order_by("name")
    chosen = projects.filter(name=request.GET.get("project", "")[:63]).first() or projects.first()
    with steady():
        rows, effective = policy_rows(actor), effective_rows(chosen) if chosen else []
    context = {
        "rows": rows,
        "kinds": KINDS,
        "projects": projects,
        "project": chosen,
        "effective": effective,
        "may_add": bool(manageable_owners(actor)),
    }
    return render(request, "workloads/policies.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Set a policy where there is none; one that is there already is opened instead."""
    actor = actor_of(request)
    places = manageable_owners(actor)
    if not places:
        require_scope(actor, None)
    form = PolicyForm(sent(request), places=places)
    if shown := copies_of(request, form, lambda: _twin(form, _chosen(actor, form))):
        return shown
    if request.method == "POST" and form.is_valid():
        target = _chosen(actor, form)
        if there := Policy.objects.filter(kind=str(target.kind), **target.where).first():
            messages.info(request, _("There is such a policy already: this is it."))
            return redirect("workloads:policy", policy_id=there.pk)
        return _set(request, form, target, None)
    return _form(request, form, None)


@login_required
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, policy_id: UUID) -> HttpResponse:
    """Set it anew."""
    actor = actor_of(request)
    row = get_object_or_404(visible_policies(actor), pk=policy_id)
    target = _target(row)
    require_scope(actor, target.owner)
    form = PolicyForm(sent(request), places=[], old=row)
    if shown := copies_of(request, form, lambda: _twin(form, target)):
        return shown
    if request.method == "POST" and form.is_valid():
        return _set(request, form, target, row)
    return _form(request, form, row)


@login_required
@require_POST
def lift(request: HttpRequest, policy_id: UUID) -> HttpResponse:
    """Take it away."""
    actor = actor_of(request)
    target = _target(get_object_or_404(visible_policies(actor), pk=policy_id))
    if copied := copies_of_act(request, twins.policy_lifted(target.kind, target.owner)):
        return copied
    lift_policy(target=target, actor=actor)
    messages.success(request, _("Taken away: the %(what)s.") % {"what": target.title})
    return redirect(LIST)


def _set(request: HttpRequest, form: PolicyForm, target: Target, row: Policy | None) -> HttpResponse:
    try:
        name = form.cleaned_data["name"]
        set_policy(target=target, name=name, document=form.document(target.kind), actor=actor_of(request))
    except (Refused, Conflict) as error:
        form.show(error, POINTERS)
        return _form(request, form, row)
    messages.success(request, _("Set: the %(what)s. It counts from the next submission on.") % {"what": target.title})
    return redirect(LIST)


def _form(request: HttpRequest, form: PolicyForm, row: Policy | None) -> HttpResponse:
    context = {"form": form, "policy": row, "title": _target(row).title if row else ""}
    return render(request, "workloads/policy.html", context, status=422 if form.errors else 200)


def _twin(form: PolicyForm, target: Target) -> Call:
    return twins.set_policy(target.kind, target.owner, form.cleaned_data["name"], form.document(target.kind))


def _chosen(actor: Actor, form: PolicyForm) -> Target:
    return Target(Kind(form.cleaned_data["kind"]), chosen_owner(actor, form.cleaned_data["place"]))


def _target(row: Policy) -> Target:
    return Target(Kind(row.kind), row.owner)
