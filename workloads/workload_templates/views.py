"""Templates: which there are, what each says, and the forms to keep, change and delete them."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kit.db.keyset_pagination import page_of
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import BadRequest, Conflict, NotFound, PayloadTooLarge, ValidationFailed
from portal.kit.pages.api_snippets import ApiRequest as Call
from portal.kit.pages.api_snippets import action_snippet, form_snippets
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.organisation.models import Project
from workloads.policies.selectors import manageable_scopes, require_scope
from workloads.state.selectors.workloads import workload_or_404
from workloads.workload_templates.forms import POINTERS, TemplateForm, yaml_of
from workloads.workload_templates.models import WorkloadTemplate
from workloads.workload_templates.rules import keepable
from workloads.workload_templates.selectors import (
    may_keep,
    merge_template,
    require_keep,
    template_or_404,
    unknown_pools,
    usable_assets,
    visible_assets,
    visible_templates,
)
from workloads.workload_templates.serializers import (
    template_create_request,
    template_delete_request,
    template_update_request,
)
from workloads.workload_templates.services import change_template, create_template, delete_template, runnable

LIST: Final = "workloads:templates"
ONE: Final = "workloads:template"
PAGE_SIZE: Final = 50
REFUSALS: Final = (BadRequest, Conflict, ValidationFailed, PayloadTooLarge)


@login_required
@require_safe
def templates(request: HttpRequest) -> HttpResponse:
    """Every template that the reader may see, by name."""
    actor = actor_of(request)
    page = page_of(visible_templates(actor), column="name", after=request.GET.get("after", ""), size=PAGE_SIZE)
    with cached_reads():
        rows = [(row, row.place.words, may_keep(actor, row)) for row in page.rows]
        may_add = bool(manageable_scopes(actor, in_project=Permission.SUBMIT))
    return render(
        request, "workloads/workload_templates/templates.html", {"page": page, "rows": rows, "may_add": may_add}
    )


@login_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    form = form_for_new(actor, data=form_data(request), initial=_copied(request, actor))
    if shown := suggestions(request, form) or form_snippets(request, form, lambda: _api_request(form)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            row = create_template(kind=form.cleaned_data["kind"], owner=form.owner, draft=form.draft, actor=actor)
        except REFUSALS as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Template saved. It is now available on the submit page."))
            return redirect(ONE, template_id=row.pk)
    return _page(request, form, None)


@login_required
@require_http_methods(["GET", "POST"])
def one(request: HttpRequest, template_id: UUID) -> HttpResponse:
    """Its values; with permission to change it, the form to do so."""
    actor = actor_of(request)
    row = template_or_404(actor, template_id)
    if request.method == "POST":
        require_keep(actor, row)
    form = TemplateForm(form_data(request), assets=list(usable_assets(row.owner)), old=row)
    if shown := form_snippets(request, form, lambda: template_update_request(row, form.draft)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            change_template(template=row, draft=form.draft, actor=actor)
        except REFUSALS as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Saved. Existing workloads do not change."))
            return redirect(ONE, template_id=row.pk)
    return _page(request, form, row)


@login_required
@require_POST
def delete(request: HttpRequest, template_id: UUID) -> HttpResponse:
    """Gone. What was submitted with it stays."""
    actor = actor_of(request)
    row = template_or_404(actor, template_id)
    if copied := action_snippet(request, template_delete_request(row)):
        return copied
    delete_template(template=row, actor=actor)
    messages.success(request, _("Deleted %(name)s. Existing workloads do not change.") % {"name": row.name})
    return redirect(LIST)


def _api_request(form: TemplateForm) -> Call:
    return template_create_request(form.cleaned_data["kind"], form.owner, form.draft)


def form_for_new(actor: Actor, **kwargs: Any) -> TemplateForm:
    """The form of a new template. Denied for users who may create none."""
    scopes = manageable_scopes(actor, in_project=Permission.SUBMIT)
    if not scopes:
        require_scope(actor, None)
    return TemplateForm(scopes=scopes, assets=list(visible_assets(actor)), **kwargs)


def first_values(found: tuple[str, Mapping[str, Any]], *, name: str, project: Project) -> dict[str, Any]:
    """What the form of a template begins with: kind and spec of a submission, its name and its project."""
    kind, spec = found
    return {"kind": kind, "name": name, "place": f"project {project.name}", "text": yaml_of(spec)}


def show_form(request: HttpRequest, form: TemplateForm) -> HttpResponse:
    return _page(request, form, None)


def _copied(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    """The workload that the URL names; absent where it is foreign, or no template can say it."""
    key = request.GET.get("workload", "")
    if not key:
        return {}
    workload = workload_or_404(actor, key)
    found = keepable(workload.type.name, workload.raw)
    if found is None:
        raise NotFound
    return first_values(found, name=workload.name, project=workload.project)


def _page(request: HttpRequest, form: TemplateForm, row: WorkloadTemplate | None) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "template": row}
    if row is not None:
        whole = merge_template(row)
        context |= {
            "place": row.place.words,
            "may_keep": may_keep(actor_of(request), row),
            "lacking": runnable(row),
            "gone": unknown_pools(row),
            "whole": yaml_of({"spec": whole.spec, **({"masterSpec": whole.master} if whole.master else {})}),
        }
    return render(request, "workloads/workload_templates/template.html", context, status=422 if form.errors else 200)
