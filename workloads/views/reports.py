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

from clusters.models import Cluster
from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import RungError
from portal.core.htmx import render_page
from portal.core.http import actor_of
from portal.core.keyset import page_of
from portal.core.pageforms import sent
from portal.core.sheets import download
from tenants.permissions import standing_of
from workloads.models import Report, ReportStatus
from workloads.report_forms import GROUPS, ReportForm
from workloads.report_requests import CLUSTER_ID, named_places
from workloads.selectors.reports import reports_of
from workloads.services import reports as service
from workloads.services.report_making import KEPT, UNFINISHED
from workloads.twins import new_report, report_gone

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
    form = ReportForm(sent(request), standing=standing_of(actor), now=timezone.now())
    if shown := copies_of(request, form, lambda: new_report(form.asked)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            row = service.create_report(actor=actor, **form.asked)
        except RungError as error:
            form.show(error, {"/filterBy/0": "filter_by"})
        else:
            messages.success(request, _("%(name)s is being made.") % {"name": row.name})
            return redirect("workloads:reports")
    return render_page(
        request,
        "workloads/reports.html",
        {"form": form, **_listed(request)},
        parts=("reports",),
        status=422 if form.errors else 200,
    )


@login_required
@require_safe
def file(request: HttpRequest, report_id: UUID) -> HttpResponse:
    """The file of one of mine."""
    row, text = service.file_of_report(key=report_id, actor=actor_of(request))
    return download(text, name=row.name)


@login_required
@require_POST
def delete(request: HttpRequest, report_id: UUID) -> HttpResponse:
    """Throw one of mine away."""
    actor = actor_of(request)
    row = service.own_report(key=report_id, actor=actor)
    if copied := copies_of_act(request, report_gone(row)):
        return copied
    service.delete_report(key=row.pk, actor=actor)
    messages.success(request, _("The report is deleted, with its file."))
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
