"""Usage reports: one's own, the form for another one, the file."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.inventory.models import Cluster
from portal.kit.api.parsers import csv_response
from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import RungError
from portal.kit.pages.api_snippets import action_snippet, form_snippets
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import access_for
from workloads.reports import services as reports_services
from workloads.reports.forms import GROUPS, ReportForm
from workloads.reports.models import Report, ReportStatus
from workloads.reports.rules import CLUSTER_ID, named_places
from workloads.reports.selectors import reports_of
from workloads.reports.serializers import report_create_request, report_delete_request
from workloads.reports.services import KEPT, UNFINISHED

PAGE_SIZE: Final = 20
TONES: Final = {
    ReportStatus.PENDING.value: "wait",
    ReportStatus.PROCESSING.value: "wait",
    ReportStatus.READY.value: "good",
    ReportStatus.FAILED.value: "bad",
}


@login_required
@require_http_methods(["GET", "POST"])
def reports(request: HttpRequest) -> HttpResponse:
    """My reports, newest first, and a form for another one."""
    actor = actor_of(request)
    form = ReportForm(form_data(request), access=access_for(actor), now=timezone.now())
    if shown := suggestions(request, form) or form_snippets(
        request, form, lambda: report_create_request(form.requested)
    ):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            row = reports_services.create_report(actor=actor, **form.requested)
        except RungError as error:
            form.show(error, {"/filterBy/0": "filter_by"})
        else:
            messages.success(request, _("Creating %(name)s.") % {"name": row.name})
            return redirect("workloads:reports")
    return render_page(
        request,
        "workloads/reports/reports.html",
        {"form": form, **_listed(request)},
        parts=("reports",),
        status=422 if form.errors else 200,
    )


@login_required
@require_safe
def file(request: HttpRequest, report_id: UUID) -> HttpResponse:
    row, text = reports_services.file_of_report(key=report_id, actor=actor_of(request))
    return csv_response(text, name=row.name)


@login_required
@require_POST
def delete(request: HttpRequest, report_id: UUID) -> HttpResponse:
    actor = actor_of(request)
    row = reports_services.own_report(key=report_id, actor=actor)
    if copied := action_snippet(request, report_delete_request(row)):
        return copied
    reports_services.delete_report(key=row.pk, actor=actor)
    messages.success(request, _("Report deleted."))
    return redirect("workloads:reports")


def _listed(request: HttpRequest) -> dict[str, Any]:
    after = request.GET.get("after", "")
    page = page_of(reports_of(actor_of(request)), column="-created_at", after=after, size=PAGE_SIZE)
    clusters = {str(key): name for key, name in Cluster.objects.values_list("pk", "name")}
    return {
        "page": page,
        "unfinished": any(row.status in UNFINISHED for row in page.rows),
        "tones": TONES,
        "rows": [(row, _about(row, clusters)) for row in page.rows],
        "kept_days": KEPT.days,
    }


def _about(row: Report, clusters: Mapping[str, str]) -> str:
    """What a line of it is of, and where: "project, in llm-team"."""
    group = next((str(title) for key, title in GROUPS if key == row.group_by), _("cluster"))
    named = named_places(row.filter_by)
    places = [clusters.get(name, name) if field == CLUSTER_ID else name for field, name in named.items()]
    return _("%(group)s, of %(places)s") % {"group": group, "places": ", ".join(places)} if places else group
