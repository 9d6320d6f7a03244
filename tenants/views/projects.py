"""Pages of the projects: quotas per pool, members, caps, and who changed a quota and why."""

from collections.abc import Sequence

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from clusters.flavours import flavour_for
from clusters.promises import MIN_RUNTIME
from clusters.services.configured import promise_on
from clusters.services.gpu_use import measures
from portal.core.copying import address_of
from portal.core.http import actor_of
from portal.core.recipes import Recipe, recipes, rung_text, yaml_text
from tenants.limits import limits_of
from tenants.min_runtimes import guarantee_of
from tenants.models import IdleLimit, Project
from tenants.permissions import Verb, standing_of, visible_projects
from tenants.quota_history import quota_changes
from tenants.selectors import PoolQuota, startable_rows, startable_rows_of
from tenants.trend import SPANS, TITLES, trend_of
from tenants.twins import project_as_it_is, project_document


@login_required
@require_safe
def project_list(request: HttpRequest) -> HttpResponse:
    """Every project that I may see, with its quota bars."""
    projects = list(visible_projects(actor_of(request)).select_related("department", "cluster").order_by("name"))
    rows = startable_rows_of(projects)
    return render(request, "tenants/projects.html", {"projects": [(each, rows[each.pk]) for each in projects]})


@login_required
@require_safe
def project_detail(request: HttpRequest, name: str) -> HttpResponse:
    """One project. A foreign one is absent."""
    standing = standing_of(actor_of(request))
    project = standing.projects().select_related("department", "cluster").filter(name=name).first()
    if project is None:
        raise Http404
    flavour = flavour_for(project.cluster.flavour)
    span = request.GET.get("span", "")
    span = span if span in SPANS else next(iter(SPANS))
    rows = startable_rows(project)
    context = {
        "project": project,
        "trend": trend_of(project, span=span, now=timezone.now()),
        "span": span,
        "spans": TITLES.items(),
        "back": _("%(span)s ago") % {"span": TITLES[span]},
        "rows": rows,
        "recipes": _copies(request, project, rows) if standing.can(Verb.MANAGE_PROJECT, project=project) else [],
        "members": project.memberships.select_related("user", "service_account", "group", "role"),
        "caps": project.priority_caps.all(),
        "limits": limits_of(project),
        "idle_limits": limits_of(project, IdleLimit),
        "gpus_measured": measures(project.cluster, now=timezone.now()),
        "guarantee": guarantee_of(project),
        "scheduler": flavour.title,
        "kept": promise_on(project.cluster, MIN_RUNTIME),
        "changes": quota_changes(project),
        "may_submit": standing.can(Verb.SUBMIT, project=project),
    }
    return render(request, "tenants/project.html", context)


def _copies(request: HttpRequest, project: Project, rows: Sequence[PoolQuota]) -> list[Recipe]:
    """For whoever changes quotas by program, or keeps them in files."""
    document = yaml_text([project_document(project, rows)])
    command = rung_text(["apply", "-f", "-", "--plan"], document)
    return recipes(address_of(request), [project_as_it_is(project, rows)], document=document, command=command)
