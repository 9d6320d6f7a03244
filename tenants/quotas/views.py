"""The table of the quotas page: departments and projects of a node pool, edited in place, and what the edits would do.

The page itself is a view of the plans above: saving opens a plan.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.core.paginator import Page, Paginator
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext as _

from clusters.inventory.models import NodePool
from portal.kit.errors import Problem, RungError
from portal.kit.pages.forms import PageForm, form_data, search_text
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from scheduling.model.resources import Resources
from tenants.access.selectors import Access, access_for
from tenants.organisation.models import Department, Project
from tenants.quotas.forms import LABELS, RESOURCES, QuotaRowForm, ReasonForm, prefix_of
from tenants.quotas.rules import QuotaValues, amount_text, format_amount
from tenants.quotas.selectors.quota_tree import (
    Branch,
    OwnerKey,
    PoolQuotas,
    QuotaLine,
    branches_of,
    key_of,
    over,
    pool_quotas,
    pools_for,
)
from tenants.quotas.services.what_if import WhatIf, rule_of, share_of_each, values_of, what_if

PAGE_SIZE: Final = 50
TEMPLATE: Final = "tenants/quotas/quotas.html"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: a department (heads), or one of its projects.

    line: None where only the department's name is shown. form: where the reader may change it. share: its fair share
    of the resource now, where the scheduler has one.
    """

    branch: Branch
    line: QuotaLine | None
    heads: bool
    resource: str
    form: QuotaRowForm | None = None
    share: int | None = None

    @property
    def cells(self) -> list[str]:
        """Deserved, limit, over-quota weight and rank as text, for who may not change them."""
        if self.line is None:
            return []
        quota, name = self.line.quota, self.resource
        deserved, limit = getattr(quota.deserved, name), getattr(quota.limit, name)
        return [
            _("not counted") if deserved is None else format_amount(name, deserved),
            _("unlimited") if limit is None else format_amount(name, limit),
            f"{values_of(quota).weights[name]:.7g}",
            quota.rank,
        ]

    @property
    def used(self) -> str:
        return self._text(self.line.usage.allocated if self.line else None)

    @property
    def non_preemptible(self) -> str:
        return self._text(self.line.usage.non_preemptible if self.line else None)

    @property
    def over(self) -> str:
        """What is in use above the deserved quota; empty where nothing is."""
        beyond = self.line.over_quota(self.resource) if self.line else 0
        return format_amount(self.resource, beyond) if beyond else ""

    @property
    def share_text(self) -> str:
        """The share; empty where it is unknown."""
        return format_amount(self.resource, self.share)

    def _text(self, amounts: Resources | None) -> str:
        return "" if amounts is None else format_amount(self.resource, getattr(amounts, self.resource))


@dataclass(frozen=True)
class QuotaTable:
    """One resource of a pool as its reader sees it. forms: by owner, of the page's rows and of every row sent."""

    access: Access
    resource: str
    quotas: PoolQuotas
    rows: Sequence[Row]
    page: Page[Any]
    forms: Mapping[OwnerKey, QuotaRowForm]

    @property
    def pool(self) -> NodePool:
        return self.quotas.pool

    @property
    def invalid(self) -> list[QuotaRowForm]:
        """Rows with a cell that is refused."""
        return [form for form in self.forms.values() if form.is_bound and not form.is_valid()]

    def refuse(self, owners: Sequence[OwnerKey], error: RungError, reason: ReasonForm) -> None:
        """Show each problem at its cell: its pointer is `/quotas/`, a place in `owners` and a value. Others: above."""
        for problem in error.problems or (Problem("", error.code, error.message),):
            place = re.fullmatch(r"/quotas/(\d{1,6})(/.*)?", problem.pointer)
            form: PageForm = self.forms[owners[int(place[1])]] if place else reason
            at = replace(problem, pointer=(place[2] or "") if place else problem.pointer)
            fields = form.field_at if isinstance(form, QuotaRowForm) else {}
            form.show(type(error)(error.message, problems=[at]), fields)

    @property
    def edits(self) -> dict[OwnerKey, QuotaValues]:
        """The new quotas of the rows that were edited and are well-formed, in the order of the table."""
        sent = {key: form for key, form in self.forms.items() if form.is_bound and form.is_valid()}
        return {key: form.values for key, form in sent.items() if form.changed_data}


def changed_fields(quotas: PoolQuotas, key: OwnerKey, values: QuotaValues) -> dict[str, object]:
    """The columns of a quota that differ from the stored ones."""
    stored = values_of(quotas.quota(key)).as_fields()
    return {name: value for name, value in values.as_fields().items() if value != stored[name]}


def read_table(request: HttpRequest) -> tuple[list[NodePool], QuotaTable | None]:
    """The pools that the reader may choose, and the chosen one; None where there is none. An unknown one is absent."""
    access = access_for(actor_of(request))
    pools = list(pools_for(access))
    chosen, resource = _chosen(pools, request.GET), request.GET.get("resource") or "gpu"
    if resource not in RESOURCES:
        raise Http404
    if chosen is None:
        return pools, None
    (read,) = pool_quotas([chosen])
    search = search_text(request)
    branches = list(branches_of(read, access, search=search))
    lines = [row for branch in branches for row in _lines(branch, resource)]
    page = Paginator(lines, PAGE_SIZE).get_page(request.GET.get("page"))
    data = form_data(request)
    shown = list(page.object_list)
    forms = _forms(data, lines, shown)
    rows = _rows(read, shown, forms, resource)
    return pools, QuotaTable(access, resource, read, rows, page, forms)


def _chosen(pools: Sequence[NodePool], query: QueryDict) -> NodePool | None:
    """By the names of the cluster and the pool; without them the first."""
    cluster, name = query.get("cluster", ""), query.get("pool", "")
    fits = [pool for pool in pools if cluster in {"", pool.cluster.name} and name in {"", pool.name}]
    if (cluster or name) and not fits:
        raise Http404
    return fits[0] if fits else None


def _lines(branch: Branch, resource: str) -> list[Row]:
    heads = Row(branch, branch.line, heads=True, resource=resource)
    return [heads, *(Row(branch, line, heads=False, resource=resource) for line in branch.projects)]


def _forms(data: QueryDict | None, lines: Sequence[Row], shown: Sequence[Row]) -> dict[OwnerKey, QuotaRowForm]:
    """Of the rows that were sent, wherever they are shown, and of the others on the page."""
    found: dict[OwnerKey, QuotaRowForm] = {}
    for row in lines:
        if data is not None and row.line and row.line.may_change and f"{prefix_of(row.line.key)}-rank" in data:
            found[row.line.key] = QuotaRowForm(data, line=row.line, resource=row.resource)
    for row in shown:
        if row.line and row.line.may_change and row.line.key not in found:
            found[row.line.key] = QuotaRowForm(None, line=row.line, resource=row.resource)
    return found


def _rows(read: PoolQuotas, shown: Sequence[Row], forms: Mapping[OwnerKey, QuotaRowForm], resource: str) -> list[Row]:
    """With forms and shares. A page that begins within a department repeats its name."""
    shares = share_of_each(read, resource)
    rows = [
        replace(row, form=forms.get(row.line.key), share=shares.get(row.line.key)) if row.line else row for row in shown
    ]
    return rows if not rows or rows[0].heads else [Row(rows[0].branch, None, heads=True, resource=resource), *rows]


def render_table(
    request: HttpRequest, pools: Sequence[NodePool], table: QuotaTable | None, reason: ReasonForm, *, status: int = 200
) -> HttpResponse:
    """The page, or for htmx the panel with the sums that follow the edits."""
    edits = table.edits if table else {}
    result = what_if(table.quotas, edits, table.access, table.resource) if table and edits else None
    context: dict[str, Any] = {
        "pools": pools,
        "table": table,
        "reason": reason,
        "search": search_text(request),
        "result": result,
        "resources": RESOURCES,
    }
    if table:
        after, resource = result.after if result else table.quotas, table.resource
        context |= {
            "pool": table.pool,
            "resource": resource,
            "labels": LABELS[resource],
            "rule": rule_of(table.pool.cluster),
            "used": amount_text(resource, getattr(table.quotas.usage_of_all.allocated, resource)),
            "fixed": amount_text(resource, getattr(table.quotas.usage_of_all.non_preemptible, resource)),
            **(_effect_texts(result, resource) if result else {}),
            "sum": _pool_sum(after, resource),
            "sums": {row.branch.department.pk: _sum_of(row.branch, after, resource) for row in table.rows if row.heads},
        }
    return render_page(request, TEMPLATE, context, parts=("what-if",), status=status)


def _effect_texts(result: WhatIf, resource: str) -> dict[str, Any]:
    """Shares as owner, before and after; what others' shares change by, if they do; overhangs as owner and amounts."""
    overhangs = [(each.owner, (each.held, each.over, each.deserved)) for each in result.overhangs]
    return {
        "shares": [
            (each.owner, format_amount(resource, each.before), format_amount(resource, each.after))
            for each in result.shares
        ],
        "elsewhere": amount_text(resource, result.elsewhere) if result.elsewhere else "",
        "overhangs": [(owner, *(amount_text(resource, amount) for amount in amounts)) for owner, amounts in overhangs],
    }


@dataclass(frozen=True, slots=True)
class PoolSum:
    """What all departments and all projects deserve of a resource, as words, beside what the nodes have.

    physical: empty while no node was observed. over_departments, over_projects: by how much; empty where not at all.
    """

    deserve: str
    physical: str
    over_departments: str
    over_projects: str


def _pool_sum(after: PoolQuotas, resource: str) -> PoolSum:
    physical = None if after.nodes is None else getattr(after.nodes, resource)
    departments, projects = (
        getattr(each, resource) for each in (after.deserved_of_departments, after.deserved_of_projects)
    )
    return PoolSum(
        deserve=_deserve_text(after, resource, departments, projects),
        physical="" if physical is None else amount_text(resource, physical),
        over_departments=_beyond(resource, departments, physical),
        over_projects=_beyond(resource, projects, physical),
    )


def _deserve_text(after: PoolQuotas, resource: str, departments: int, projects: int) -> str:
    """An amount that is not set is not counted, which is no zero."""
    amounts = {"departments": amount_text(resource, departments), "projects": amount_text(resource, projects)}
    each_project = (project for projects in after.projects_of.values() for project in projects)
    match _any_set(after, after.departments, resource), _any_set(after, each_project, resource):
        case True, True:
            return _("departments deserve %(departments)s, projects %(projects)s") % amounts
        case True, False:
            return _("departments deserve %(departments)s, no quota of a project is set") % amounts
        case False, True:
            return _("projects deserve %(projects)s, no quota of a department is set") % amounts
        case _:
            return _("no deserved %(resource)s quota is set") % {"resource": "CPU" if resource == "cpu" else resource}


def _any_set(after: PoolQuotas, owners: Iterable[Department | Project], resource: str) -> bool:
    """Does any of these have a deserved quota of it? GPUs always count."""
    deserved = (after.quota(key_of(owner)).deserved for owner in owners)
    return resource == "gpu" or any(getattr(each, resource) is not None for each in deserved)


def _beyond(resource: str, promised: int, available: int | None) -> str:
    """By how much it is over-committed, as text; empty where it is not."""
    beyond = over(promised, available)
    return amount_text(resource, beyond) if beyond else ""


@dataclass(frozen=True, slots=True)
class DepartmentSum:
    """What the projects of a department deserve together of a resource, beside its own; empty: none is set."""

    projects: str
    own: str
    over: str


def _sum_of(branch: Branch, after: PoolQuotas, resource: str) -> DepartmentSum:
    key = OwnerKey("department", branch.department.pk)
    sums = after.deserved_by_projects.get(key.pk)
    together, own = getattr(sums, resource) if sums else 0, getattr(after.quota(key).deserved, resource)
    own_text = "" if own is None else amount_text(resource, own)
    is_set = _any_set(after, after.projects_of.get(key.pk, ()), resource)
    together_text = (format_amount if own_text else amount_text)(resource, together) if is_set else ""
    return DepartmentSum(together_text, own_text, _beyond(resource, together, own))
