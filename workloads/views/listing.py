"""The workloads table: filters, order and page in the URL, refreshed in place; verbs on many rows."""

from typing import Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe

from portal.core.errors import BadRequest
from portal.core.htmx import render_page
from portal.core.http import actor_of
from portal.core.keyset import page_of
from tenants.permissions import visible_projects
from workloads.forms import WorkloadFilter
from workloads.selectors import visible_workloads
from workloads.services.bulk import act_on_all

PAGE_SIZE: Final = 50
LIST: Final = "workloads/list.html"


@login_required
@require_safe
def workload_list(request: HttpRequest) -> HttpResponse:
    """My workloads. Everything that shapes the table is in the URL."""
    actor = actor_of(request)
    names = list(visible_projects(actor).order_by("name").values_list("name", flat=True))
    wanted = WorkloadFilter(request.GET, projects=names)
    rows = wanted.narrow(visible_workloads(actor)).select_related("project", "type", "priority")
    page = page_of(rows, column=wanted.column, after=request.GET.get("after", ""), size=PAGE_SIZE)
    context = {"filter": wanted, "page": page, "projects": names}
    return render_page(request, LIST, context, parts=("table",))


@login_required
@require_POST
def bulk(request: HttpRequest) -> HttpResponse:
    """Stop, resume or delete the ticked rows and say what happened to each."""
    actor = actor_of(request)
    ids = ids_in(request.POST.getlist("id"))
    results = act_on_all(rows=visible_workloads(actor), ids=ids, verb=request.POST.get("verb", ""), actor=actor)
    return render_page(request, "workloads/bulk.html", {"results": results}, parts=("results",))


def ids_in(texts: list[str]) -> list[str]:
    """Workload ids as they are stored; anything else is 400."""
    try:
        return [str(UUID(text)) for text in texts]
    except ValueError:
        raise BadRequest("A row's id is damaged: reload the page.", code="bad_id") from None
