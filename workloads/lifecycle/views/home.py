"""Home, the list of workloads with its batch actions, and the menu around every page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_POST, require_safe

from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import BadRequest
from portal.kit.pages.api_snippets import ApiRequest, action_snippet
from portal.kit.pages.forms import suggestions
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import Access, access_for, visible_projects
from tenants.organisation.models import Department
from tenants.quotas.selectors.quota_rows import startable_rows_of
from workloads.dictionary.models import Priority
from workloads.forecast.rules.messages import gpu_time_text
from workloads.lifecycle.forms import WorkloadFilter
from workloads.lifecycle.selectors.activity import alerts_for, decision_news, fleet_status
from workloads.lifecycle.selectors.workloads import totals_of
from workloads.lifecycle.serializers.workloads import batch_action_request, workloads_file
from workloads.lifecycle.services.actions import MOST, VERBS, EndingWorkload, act_on_all, before_many, chosen
from workloads.state.models import Workload
from workloads.state.selectors.usage import gpu_seconds_at_risk, unsaved_gpu_seconds, with_costs
from workloads.state.selectors.workloads import FAILED_TO_APPLY, visible_workloads

MENU: Final = (
    ("home", gettext_noop("Home"), "home"),
    ("workloads:list", gettext_noop("Workloads"), "list-details"),
    ("tenants:projects", gettext_noop("Projects"), "folder"),
    ("workloads:quotas", gettext_noop("Quotas"), "pencil"),
    ("workloads:priorities", gettext_noop("Priorities"), "stairs"),
    ("workloads:types", gettext_noop("Types"), "category"),
    ("workloads:plans", gettext_noop("Plans"), "check"),
    ("clusters:list", gettext_noop("Clusters"), "server-2"),
    ("workloads:findings", gettext_noop("Findings"), "alert-triangle"),
    ("workloads:reports", gettext_noop("Reports"), "archive"),
    ("tenants:audit", gettext_noop("Audit"), "history"),
)


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One entry of the menu."""

    title: str
    url: str
    icon: str
    active: bool


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the menu, the offered priority values (read only by pages that draw a ladder), and departments
    whose quota the reader may set.
    """
    menu = SimpleLazyObject(lambda: navigation(request.path))
    departments = SimpleLazyObject(lambda: DepartmentQuotaAccess(access_for(actor_of(request))))
    return {
        "navigation": menu,
        "priority_values": SimpleLazyObject(offered_values),
        "settable_departments": departments,
    }


@dataclass(frozen=True, slots=True)
class DepartmentQuotaAccess:
    """Contains the departments whose quota the reader may set."""

    access: Access

    def __contains__(self, department: Department) -> bool:
        return self.access.can(Permission.MANAGE_DEPARTMENT_QUOTA, department=department)


def navigation(path: str) -> list[MenuEntry]:
    """The menu with the entry of this page marked."""
    entries = [(title, reverse(name), icon) for name, title, icon in MENU]
    return [MenuEntry(_(title), url, icon, _is_within(path, url)) for title, url, icon in entries]


def _is_within(path: str, url: str) -> bool:
    return path == url or (url != "/" and path.startswith(url))


def offered_values() -> list[int]:
    """Values of the rungs, lowest first."""
    rungs = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True)
    return list(rungs.order_by("value").values_list("value", flat=True))


NEWEST = 8
PROJECTS = 8


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The sentence per project and pool, what waits for me, quota bars, my newest workloads."""
    actor = actor_of(request)
    access = access_for(actor)
    projects = list(access.projects().select_related("department", "cluster").order_by("name")[: PROJECTS + 1])
    rows = startable_rows_of(projects[:PROJECTS])
    mine = visible_workloads(actor).select_related("project__cluster", "type", "priority")
    own = mine.filter(submitted_by_kind=str(actor.kind), submitted_by_id=actor.id)
    at_risk = gpu_seconds_at_risk(own)
    context = {
        "fleet": fleet_status(now=timezone.now()) if access.can(Permission.MANAGE_CLUSTERS) else None,
        "at_risk": at_risk,
        "lost": gpu_time_text(sum(at_risk)),
        "projects": [(each, rows[each.pk]) for each in projects[:PROJECTS]],
        "more_projects": len(projects) > PROJECTS,
        "needs": alerts_for(own),
        "decision_news": decision_news(actor, now=timezone.now()),
        "failed_applies": mine.filter(FAILED_TO_APPLY).count() if access.holds(Permission.MANAGE_ANY_WORKLOAD) else 0,
        "newest": with_costs(list(own.order_by("-created_at", "-id")[:NEWEST])),
        "may_submit": access.projects(Permission.SUBMIT).exists(),
    }
    return render_page(request, "workloads/lifecycle/home.html", context, parts=("today",))


PAGE_SIZE: Final = 50
LIST: Final = "workloads/lifecycle/list.html"
NOT_IN_TABLE: Final = (
    *("raw", "discarded", "warnings", "node_pools", "applied_scheduling"),
    *("project__description", "project__default_node_pools"),
    *(f"project__cluster__{name}" for name in ("served_kinds", "silent_kinds", "configured")),
)
"""Documents of a row, most of its size, that the table does not show."""
ENDS: Final = frozenset({"stop", "delete"})
UNDO: Final = {"stop": "resume", "resume": "stop"}
DOING: Final = {
    "stop": gettext_lazy("Stopping %(changed)s of %(all)s workloads"),
    "resume": gettext_lazy("Resuming %(changed)s of %(all)s workloads"),
    "retry": gettext_lazy("Retrying %(changed)s of %(all)s workloads"),
    "delete": gettext_lazy("Deleting %(changed)s of %(all)s workloads"),
}


@login_required
@require_safe
def workload_list(request: HttpRequest) -> HttpResponse:
    """My workloads. Everything that shapes the table is in the URL."""
    actor = actor_of(request)
    projects = visible_projects(actor)
    wanted = WorkloadFilter(request.GET, projects=projects)
    if suggested := suggestions(request, wanted):
        return suggested
    found = wanted.narrow(visible_workloads(actor, deleted=wanted.wants_deleted)).select_related(None)
    rows = found.select_related("project__cluster", "type", "priority").defer(*NOT_IN_TABLE)
    if request.GET.get("format") == "csv":
        return _file(request, rows.order_by(wanted.column, "-pk"))
    page = page_of(rows, column=wanted.column, after=request.GET.get("after", ""), size=PAGE_SIZE)
    with_costs(page.rows)
    totals = totals_of(found) if wanted.chosen and page.rows else None
    context = {"filter": wanted, "page": page, "projects": projects, "totals": totals}
    return render_page(request, LIST, context, parts=("table",))


MOST_IN_FILE: Final = 10_000


def _file(request: HttpRequest, rows: QuerySet[Workload]) -> HttpResponse:
    """The filtered table as a file; back to the page where it is too long for one."""
    found = list(rows.select_related("project__department", "project__cluster", "type", "priority")[: MOST_IN_FILE + 1])
    if len(found) <= MOST_IN_FILE:
        return workloads_file(found)
    text = _("A file has at most %(most)s workloads. Narrow the filter.") % {"most": f"{MOST_IN_FILE:,}"}
    messages.error(request, text)
    query = request.GET.copy()
    del query["format"]
    return redirect(f"{reverse('workloads:list')}?{query.urlencode()}")


@login_required
@require_POST
def bulk(request: HttpRequest) -> HttpResponse:
    """Stop, resume, retry or delete the ticked rows and say what happened to each.

    What ends work is asked first, once for all rows, with what each loses.
    """
    actor = actor_of(request)
    ids, verb = ids_in(request.POST.getlist("id")), request.POST.get("verb", "")
    rows = visible_workloads(actor)
    if copied := action_snippet(request, _call(rows, ids, verb), lacking=_("Select up to 100 workloads first.")):
        return copied
    if verb in ENDS and not request.POST.get("sure") and (found := chosen(rows=rows, ids=ids, verb=verb)):
        return _confirmation(request, verb, before_many(verb, found, actor), unknown=len(set(ids)) - len(found))
    results = act_on_all(rows=rows, ids=ids, verb=verb, actor=actor)
    back = [each.workload for each in results if each.changed and each.workload]
    title = DOING[verb] % {"changed": sum(each.changed for each in results), "all": len(results)}
    context = {"title": title, "results": results, "verb": verb, "back": back, "undo": UNDO.get(verb, "")}
    return render_page(request, "workloads/lifecycle/bulk.html", context, parts=("results",))


def _confirmation(request: HttpRequest, verb: str, endings: Sequence[EndingWorkload], *, unknown: int) -> HttpResponse:
    ending = [each.workload for each in endings if each.ends]
    context = {
        "verb": verb,
        "endings": endings,
        "count": len(ending),
        "gpus": sum(each.allocated_gpu_milli for each in ending),
        "lost": gpu_time_text(sum(map(unsaved_gpu_seconds, ending))),
        "unknown": unknown,
    }
    return render_page(request, "workloads/lifecycle/bulk_confirm.html", context, parts=("question",))


def _call(rows: QuerySet[Workload], ids: Sequence[str], verb: str) -> ApiRequest | None:
    """None where nothing that can be asked for is ticked."""
    action = {"stop": "suspend"}.get(verb, verb)
    ticked = rows.filter(pk__in=ids[:MOST]).select_related("project").order_by("name")
    return batch_action_request(ticked, action) if verb in VERBS and 0 < len(ids) <= MOST and ticked else None


def ids_in(texts: list[str]) -> list[str]:
    """Workload ids as they are stored; anything else is 400."""
    try:
        return [str(UUID(text)) for text in texts]
    except ValueError:
        raise BadRequest("Invalid workload id. Reload the page.", code="bad_id") from None
