"""The workloads table: filters, order and page in the URL, refreshed in place; verbs on many rows."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from portal.core.copying import copies_of_act
from portal.core.errors import BadRequest
from portal.core.htmx import render_page
from portal.core.http import actor_of
from portal.core.keyset import page_of
from portal.core.recipes import Request
from tenants.permissions import visible_projects
from workloads import twins
from workloads.forms import WorkloadFilter
from workloads.models import Workload
from workloads.selectors import visible_workloads
from workloads.selectors.life import unsaved_gpu_seconds
from workloads.sentences import gpu_time_text
from workloads.services.bulk import MOST, VERBS, act_on_all, chosen
from workloads.views.questions import Ending, before_many

PAGE_SIZE: Final = 50
LIST: Final = "workloads/list.html"
ENDS: Final = frozenset({"stop", "delete"})
UNDO: Final = {"stop": "resume", "resume": "stop"}


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
    """Stop, resume, retry or delete the ticked rows and say what happened to each.

    What ends work is asked first, once for all rows, with what each loses.
    """
    actor = actor_of(request)
    ids, verb = ids_in(request.POST.getlist("id")), request.POST.get("verb", "")
    rows = visible_workloads(actor)
    if copied := copies_of_act(request, _call(rows, ids, verb), lacking=_("Tick rows first, up to 100.")):
        return copied
    if verb in ENDS and not request.POST.get("sure") and (found := chosen(rows=rows, ids=ids, verb=verb)):
        return _asked(request, verb, before_many(verb, found, actor), unknown=len(set(ids)) - len(found))
    results = act_on_all(rows=rows, ids=ids, verb=verb, actor=actor)
    back = [each.workload for each in results if each.changed and each.workload]
    context = {"results": results, "verb": verb, "back": back, "undo": UNDO.get(verb, "")}
    return render_page(request, "workloads/bulk.html", context, parts=("results",))


def _asked(request: HttpRequest, verb: str, endings: Sequence[Ending], *, unknown: int) -> HttpResponse:
    ending = [each.workload for each in endings if each.ends]
    context = {
        "verb": verb,
        "endings": endings,
        "count": len(ending),
        "gpus": sum(each.allocated_gpu_milli for each in ending),
        "lost": gpu_time_text(sum(map(unsaved_gpu_seconds, ending))),
        "unknown": unknown,
    }
    return render_page(request, "workloads/bulk_confirm.html", context, parts=("question",))


def _call(rows: QuerySet[Workload], ids: Sequence[str], verb: str) -> Request | None:
    """None where nothing that can be asked for is ticked."""
    action = {"stop": "suspend"}.get(verb, verb)
    ticked = rows.filter(pk__in=ids[:MOST]).select_related("project").order_by("name")
    return twins.act_on_all(ticked, action) if verb in VERBS and 0 < len(ids) <= MOST and ticked else None


def ids_in(texts: list[str]) -> list[str]:
    """Workload ids as they are stored; anything else is 400."""
    try:
        return [str(UUID(text)) for text in texts]
    except ValueError:
        raise BadRequest("A row's id is damaged: reload the page.", code="bad_id") from None
