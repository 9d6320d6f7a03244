"""The table of the quotas page: departments and projects of a node pool, edited in place, and what the edits would do.

The page itself is a view of the plans above: saving opens a plan.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.core.paginator import Page, Paginator
from django.http import Http404, HttpRequest, HttpResponse, QueryDict

from clusters.inventory.models import NodePool
from portal.kit.errors import Problem, RungError
from portal.kit.pages.forms import PageForm, form_data
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import Access, access_for
from tenants.quotas.forms import QuotaRowForm, ReasonForm, prefix_of
from tenants.quotas.selectors.quota_tree import (
    Branch,
    OwnerKey,
    PoolQuotas,
    QuotaLine,
    branches_of,
    over,
    pool_quotas,
    pools_for,
)
from tenants.quotas.services.quota_values import QuotaValues
from tenants.quotas.services.what_if import rule_of, share_of_each, values_of, what_if

PAGE_SIZE: Final = 50
LONGEST_SEARCH: Final = 100
TEMPLATE: Final = "tenants/quotas/quotas.html"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: a department (heads), or one of its projects.

    line: None where only the department's name is shown. form: where the reader may change it. share: GPU thousandths
    of its fair share now, where the scheduler has one.
    """

    branch: Branch
    line: QuotaLine | None
    heads: bool
    form: QuotaRowForm | None = None
    share: int | None = None


@dataclass(frozen=True)
class QuotaTable:
    """One pool as its reader sees it. forms: by owner, of the page's rows and of every row that was sent."""

    access: Access
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
            form.show(type(error)(error.message, problems=[at]), QuotaRowForm.field_at if place else {})

    @property
    def edits(self) -> dict[OwnerKey, QuotaValues]:
        """The new quotas of the rows that somebody edited and that are well-formed, in the order of the table."""
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
    chosen = _chosen(pools, request.GET)
    if chosen is None:
        return pools, None
    (read,) = pool_quotas([chosen])
    search = request.GET.get("q", "").strip()[:LONGEST_SEARCH]
    branches = list(branches_of(read, access, search=search))
    lines = [row for branch in branches for row in _lines(branch)]
    page = Paginator(lines, PAGE_SIZE).get_page(request.GET.get("page"))
    data = form_data(request)
    shown = list(page.object_list)
    forms = _forms(data, lines, shown)
    rows = _rows(read, shown, forms)
    return pools, QuotaTable(access, read, rows, page, forms)


def _chosen(pools: Sequence[NodePool], query: QueryDict) -> NodePool | None:
    """By the names of the cluster and the pool; without them the first."""
    cluster, name = query.get("cluster", ""), query.get("pool", "")
    fits = [pool for pool in pools if cluster in {"", pool.cluster.name} and name in {"", pool.name}]
    if (cluster or name) and not fits:
        raise Http404
    return fits[0] if fits else None


def _lines(branch: Branch) -> list[Row]:
    return [Row(branch, branch.line, heads=True), *(Row(branch, line, heads=False) for line in branch.projects)]


def _forms(data: QueryDict | None, lines: Sequence[Row], shown: Sequence[Row]) -> dict[OwnerKey, QuotaRowForm]:
    """Of the rows that were sent, wherever they are shown, and of the others on the page."""
    found: dict[OwnerKey, QuotaRowForm] = {}
    for row in lines:
        if data is not None and row.line and row.line.may_change and f"{prefix_of(row.line.key)}-rank" in data:
            found[row.line.key] = QuotaRowForm(data, line=row.line)
    for row in shown:
        if row.line and row.line.may_change and row.line.key not in found:
            found[row.line.key] = QuotaRowForm(None, line=row.line)
    return found


def _rows(read: PoolQuotas, shown: Sequence[Row], forms: Mapping[OwnerKey, QuotaRowForm]) -> list[Row]:
    """With forms and shares. A page that begins within a department repeats its name."""
    shares = share_of_each(read)
    rows = [
        replace(row, form=forms.get(row.line.key), share=shares.get(row.line.key)) if row.line else row for row in shown
    ]
    return rows if not rows or rows[0].heads else [Row(rows[0].branch, None, heads=True), *rows]


def render_table(
    request: HttpRequest, pools: Sequence[NodePool], table: QuotaTable | None, reason: ReasonForm, *, status: int = 200
) -> HttpResponse:
    """The page, or for htmx the panel with the sums that follow the edits."""
    edits = table.edits if table else {}
    result = what_if(table.quotas, edits, table.access) if table and edits else None
    context: dict[str, Any] = {
        "pools": pools,
        "table": table,
        "reason": reason,
        "search": request.GET.get("q", "").strip()[:LONGEST_SEARCH],
        "result": result,
    }
    if table:
        after = result.after if result else table.quotas
        context |= {
            "pool": table.pool,
            "rule": rule_of(table.pool.cluster),
            "after": after,
            "over_departments": over(after.gpus_of_departments, after.physical),
            "over_projects": over(after.gpus_of_projects, after.physical),
            "sums": {row.branch.department.pk: _sum_of(row.branch, after) for row in table.rows if row.heads},
        }
    return render_page(request, TEMPLATE, context, parts=("what-if",), status=status)


@dataclass(frozen=True, slots=True)
class DepartmentSum:
    """GPU thousandths that the projects of a department deserve together, beside its own."""

    pk: int
    projects: int
    own: int

    @property
    def over(self) -> int:
        return over(self.projects, self.own)


def _sum_of(branch: Branch, after: PoolQuotas) -> DepartmentSum:
    key = OwnerKey("department", branch.department.pk)
    sums = after.deserved_by_projects.get(key.pk)
    return DepartmentSum(key.pk, sums.gpu if sums else 0, after.quota(key).deserved.gpu or 0)
