"""Pages of quota requests: mine and those I may decide, a new one, one with its impact and decision."""

from typing import Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import RungError
from portal.kit.pages.api_snippets import action_snippet, form_snippets
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import Access, access_for
from tenants.quotas.selectors.reclaims import reclaim_rows
from workloads.plans.selectors import needs_approval
from workloads.plans.services.plans import plan_page
from workloads.plans.services.setting_plans import owner_scope
from workloads.quota_requests.forms import POINTERS, ApprovalForm, DeclineForm, QuotaRequestForm
from workloads.quota_requests.models import QuotaRequest, QuotaRequestState
from workloads.quota_requests.selectors import (
    base_of,
    decision_change,
    may_decide,
    own_requests,
    request_or_404,
    requests_to_decide,
    sync_state,
    visible_requests,
)
from workloads.quota_requests.serializers import (
    approve_request_of,
    create_request_of,
    decline_request_of,
    withdraw_request_of,
)
from workloads.quota_requests.services import (
    approve_request,
    create_request,
    decline_request,
    withdraw_request,
)

PAGE_SIZE: Final = 20
TONES: Final = {"open": "wait", "approved": "good", "declined": "bad", "withdrawn": "off", "ended": "off"}


@login_required
@require_safe
def requests(request: HttpRequest) -> HttpResponse:
    """Those I may decide, and mine; with `project` all of a project."""
    actor, project = actor_of(request), request.GET.get("project", "")
    access = access_for(actor)
    if project and not access.projects().filter(name=project).exists():
        raise Http404
    mine = visible_requests(actor).filter(project__name=project) if project else own_requests(actor)
    context = {
        "page": page_of(mine, column="-created_at", after=request.GET.get("after", ""), size=PAGE_SIZE),
        "to_decide": [] if project else list(requests_to_decide(actor)[:PAGE_SIZE]),
        "decides": access.holds(Permission.MANAGE_PROJECT_QUOTA),
        "may_ask": access.projects(Permission.SUBMIT).exists(),
        "project": project,
        "tones": TONES,
    }
    return render(request, "workloads/quota_requests/requests.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Request quota; project, pool and GPUs may be given in the URL."""
    actor = actor_of(request)
    access = access_for(actor)
    given = {name: request.GET[name] for name in ("project", "gpus") if name in request.GET}
    form = QuotaRequestForm(form_data(request), access=access, initial={**given, **_pool(request, access)})
    if shown := suggestions(request, form) or form_snippets(request, form, lambda: create_request_of(form.requested)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            row = create_request(actor=actor, **form.requested)
        except RungError as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Request sent. Its impact is shown below."))
            return redirect("workloads:quota-request", request_id=row.pk)
    return render(request, "workloads/quota_requests/add.html", {"form": form}, status=422 if form.errors else 200)


def _pool(request: HttpRequest, access: Access) -> dict[str, str]:
    """The pool of the URL as the form names it: with the project's cluster."""
    name, project = request.GET.get("pool", ""), request.GET.get("project", "")
    found = access.projects().filter(name=project).values_list("cluster__name", flat=True).first()
    return {"node_pool": f"{name} on {found}"} if name and found else {}


@login_required
@require_safe
def one(request: HttpRequest, request_id: UUID) -> HttpResponse:
    row = request_or_404(actor_of(request), request_id)
    return _page(request, row, ApprovalForm(row=row), DeclineForm())


@login_required
@require_POST
def approve(request: HttpRequest, request_id: UUID) -> HttpResponse:
    """Grant it as the form says, on the impact that was shown."""
    actor = actor_of(request)
    row = request_or_404(actor, request_id)
    form, base = ApprovalForm(form_data(request), row=row), request.POST.get("base", "")
    if shown := form_snippets(request, form, lambda: approve_request_of(row, form.cleaned_data, base)):
        return shown
    if form.is_valid():
        if needs_approval([owner_scope(row.project)]):
            return redirect(plan_page("quota_request", decision_change(row, **form.cleaned_data), actor))
        try:
            approve_request(key=row.pk, base=base, actor=actor, **form.cleaned_data)
        except RungError as error:
            if error.status in {403, 404}:
                raise
            form.show(error)
            row = request_or_404(actor, request_id)
            return _page(request, row, form, DeclineForm(), status=error.status)
        messages.success(request, _("Approved. The cluster is being updated."))
        return redirect("workloads:quota-request", request_id=row.pk)
    return _page(request, row, form, DeclineForm(), status=422)


@login_required
@require_POST
def decline(request: HttpRequest, request_id: UUID) -> HttpResponse:
    actor = actor_of(request)
    row = request_or_404(actor, request_id)
    form = DeclineForm(form_data(request))
    if shown := form_snippets(request, form, lambda: decline_request_of(row, form.cleaned_data)):
        return shown
    if form.is_valid():
        decline_request(key=row.pk, reason=form.cleaned_data["reason"], actor=actor)
        messages.success(request, _("Declined. No quota was changed."))
        return redirect("workloads:quota-request", request_id=row.pk)
    return _page(request, row, ApprovalForm(row=row), form, status=422)


@login_required
@require_POST
def withdraw(request: HttpRequest, request_id: UUID) -> HttpResponse:
    actor = actor_of(request)
    if shown := action_snippet(request, withdraw_request_of(request_or_404(actor, request_id))):
        return shown
    withdraw_request(key=request_id, actor=actor)
    messages.success(request, _("Request withdrawn."))
    return redirect("workloads:quota-request", request_id=request_id)


def _page(
    request: HttpRequest, row: QuotaRequest, approval: ApprovalForm, refusal: DeclineForm, *, status: int = 200
) -> HttpResponse:
    actor = actor_of(request)
    is_open = row.state == QuotaRequestState.OPEN
    context = {
        "row": row,
        "impact": row.impact,
        "reclaims": reclaim_rows(row.impact["reclaim"], actor),
        "moved": is_open and row.base != base_of(row.project, row.node_pool),
        "sync": sync_state(row),
        "tone": TONES[row.state],
        "needs_second": is_open and needs_approval([owner_scope(row.project)]),
        "decides": is_open and may_decide(actor, row.project),
        "withdraws": is_open and row.is_by(actor),
        "approval": approval,
        "refusal": refusal,
    }
    return render(request, "workloads/quota_requests/request.html", context, status=status)
