"""Pages of projects and departments: quotas per pool, use, loans, members, caps, who changed a quota and why."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import MIN_RUNTIME
from clusters.watch.services.usage import has_recent_readings
from portal.kit.api.routes import planner
from portal.kit.db.keyset_pagination import page_of
from portal.kit.pages.api_snippets import (
    ApiRequest,
    ApiSnippet,
    action_snippet,
    portal_address,
    rung_text,
    snippets_for,
    yaml_text,
)
from portal.kit.pages.forms import search_text
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import Access, access_for, require, visible_projects
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit
from tenants.quotas.selectors.quota_rows import PoolQuota, quota_changes, startable_rows, startable_rows_of
from tenants.quotas.selectors.runtime_rules import guarantee_of, limits_of
from tenants.quotas.services.pool_quotas import entry_json
from tenants.quotas.services.quotas import planned_rule
from tenants.usage.selectors import basis_of_borrowing, borrowing_of, chosen_span, trend_context

PAGE_SIZE: Final = 20


@login_required
@require_safe
def project_list(request: HttpRequest) -> HttpResponse:
    """The projects that I may see, with their quota bars, by cluster and name, a page at a time.

    `q` is a part of their name, `cluster` the name of their cluster. By cluster, since what can start follows from all
    pods of a cluster: a page of 20 clusters would read the pods of 20.
    """
    search, cluster = search_text(request), search_text(request, "cluster")
    projects = visible_projects(actor_of(request)).filter(name__icontains=search)
    if cluster:
        projects = projects.filter(cluster__name=cluster)
    projects, after = projects.select_related("department", "cluster"), request.GET.get("after", "")
    page = page_of(projects, column="cluster__name", tie="name", after=after, size=PAGE_SIZE)
    rows = startable_rows_of(page.rows)
    listed = [(each, rows[each.pk]) for each in page.rows]
    context = {"page": page, "projects": listed, "search": search, "only_cluster": cluster}
    return render_page(request, "tenants/organisation/projects.html", context, parts=("projects",))


@login_required
@require_safe
def project_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One project. A foreign one is absent."""
    access = access_for(actor_of(request))
    project = access.projects().select_related("department", "cluster").filter(name=name).first()
    if project is None:
        raise Http404
    flavour = flavour_for(project.cluster.flavour)
    rows = startable_rows(project)
    context = {
        "project": project,
        **_over_time(project, access, request.GET.get("span", "")),
        "may_see_department": access.can(Permission.VIEW_DEPARTMENT, department=project.department),
        "rows": rows,
        "recipes": _snippets(request, project, rows) if access.can(Permission.MANAGE_PROJECT, project=project) else [],
        "members": project.memberships.select_related("user", "service_account", "group", "role"),
        "caps": project.priority_caps.all(),
        "limits": limits_of(project),
        "idle_limits": limits_of(project, IdleLimit),
        "gpus_measured": has_recent_readings(project.cluster, now=timezone.now()),
        "guarantee": guarantee_of(project),
        "scheduler": flavour.title,
        "kept": guarantee_on(project.cluster, MIN_RUNTIME),
        "changes": quota_changes(project),
        "may_submit": access.can(Permission.SUBMIT, project=project),
    }
    return render(request, "tenants/organisation/project.html", context)


@login_required
@require_safe
def department_detail(request: HttpRequest, department_id: int) -> HttpResponse:
    """One department: use, what its projects borrow from other departments and lend to them, and its projects."""
    access = access_for(actor_of(request))
    department = _department_or_404(access, department_id)
    projects = access.projects().filter(department=department).select_related("department", "cluster")
    page = page_of(projects, column="name", after=request.GET.get("after", ""), size=PAGE_SIZE)
    rows = startable_rows_of(page.rows)
    context = {
        "department": department,
        "may_enforce": access.can(Permission.MANAGE_DEPARTMENT_QUOTA, department=department),
        "page": page,
        "projects": [(each, rows[each.pk]) for each in page.rows],
        **_over_time(department, access, request.GET.get("span", "")),
    }
    return render(request, "tenants/organisation/department.html", context)


@login_required
@require_POST
def enforce_deserved(request: HttpRequest, department_id: int) -> HttpResponse:
    """The plan to make the projects of a department keep within its deserved quota, or to stop it."""
    actor = actor_of(request)
    department = _department_or_404(access_for(actor), department_id)
    require(actor, Permission.MANAGE_DEPARTMENT_QUOTA, department=department)
    enforced = request.POST.get("enforced", "") == "on"
    path = f"/api/v1/org-unit/departments/{department.pk}/enforce-deserved"
    if copied := action_snippet(request, ApiRequest("PUT", path, {"enforceDeserved": enforced})):
        return copied
    change = planned_rule(department, "", enforce_deserved=enforced)
    return redirect(planner().page(("enforce_deserved", change), actor))


def _department_or_404(access: Access, department_id: int) -> Department:
    found = access.departments().select_related("cluster").filter(pk=department_id).first()
    if found is None:
        raise Http404
    return found


def _over_time(unit: Project | Department, access: Access, span: str) -> dict[str, Any]:
    """Use and loans of a project, or of a department with all its projects, for `trend.html` and `borrowing.html`."""
    span, now = chosen_span(span), timezone.now()
    visible = dict(access.projects().filter(cluster=unit.cluster_id).values_list("pk", "name"))
    return {
        "cluster": unit.cluster,
        **trend_context(unit, span, now=now),
        "borrowing": borrowing_of(unit, visible=visible, span=span, now=now),
        "borrowing_basis": basis_of_borrowing(unit.cluster),
    }


def _snippets(request: HttpRequest, project: Project, rows: Sequence[PoolQuota]) -> list[ApiSnippet]:
    """For users who change quotas by program, or keep them in files."""
    document = yaml_text([project_document(project, rows)])
    command = rung_text(["apply", "-f", "-", "--plan"], document)
    return snippets_for(
        portal_address(request), [update_project_request(project, rows)], document=document, command=command
    )


PROJECTS: Final = "/api/v1/org-unit/projects"


def update_project_request(project: Project, rows: Sequence[PoolQuota]) -> ApiRequest:
    """The project with its quotas as they are now, ready to be changed. Its limits of time are left out: they stay."""
    body = {
        "description": project.description,
        "defaultNodePools": project.default_node_pools or None,
        "resources": [entry_json(row.quota, row.pool) for row in _rows_with_quota(rows)],
    }
    return ApiRequest("PUT", f"{PROJECTS}/{project.pk}", body)


def project_document(project: Project, rows: Sequence[PoolQuota]) -> dict[str, Any]:
    """The same as a document that `rung apply` takes."""
    place = {"name": project.name, "cluster": project.cluster.name, "department": project.department.name}
    quotas = {row.pool.name: _quota_document(entry_json(row.quota, row.pool)) for row in _rows_with_quota(rows)}
    spec = {"description": project.description, "nodePools": project.default_node_pools, "quotas": quotas}
    return {"apiVersion": "rung.dev/v1", "kind": "Project", "metadata": place, "spec": spec}


def _rows_with_quota(rows: Sequence[PoolQuota]) -> list[PoolQuota]:
    """Without node pools where the project has nothing and never had."""
    return [row for row in rows if row.quota.pk]


def _quota_document(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A quota without its node pool, which names it there, and without what says nothing."""
    found: dict[str, Any] = {}
    for name in ("gpu", "cpu", "memory"):
        amounts = {way: entry[name][way] for way in ("deserved", "limit") if entry[name].get(way) is not None}
        if entry[name]["overQuotaWeight"] != entry["gpu"]["overQuotaWeight"]:
            amounts["overQuotaWeight"] = entry[name]["overQuotaWeight"]
        if amounts:
            found[name] = {**amounts, **({"units": entry[name]["units"]} if name == "memory" else {})}
    return {**found, "overQuotaWeight": entry["gpu"]["overQuotaWeight"], "rank": entry["rank"]}
