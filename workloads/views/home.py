"""Home: what can I run, and what needs me?"""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from portal.core.htmx import render_page
from portal.core.http import actor_of
from tenants.permissions import Verb, standing_of
from tenants.selectors import startable_rows_of
from workloads.apply_failures import FAILED_TO_APPLY
from workloads.attention import needs_attention
from workloads.selectors import visible_workloads

NEWEST = 8
PROJECTS = 8


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The sentence per project and pool, what waits for me, quota bars, my newest workloads."""
    actor = actor_of(request)
    standing = standing_of(actor)
    projects = list(standing.projects().select_related("department", "cluster").order_by("name")[: PROJECTS + 1])
    rows = startable_rows_of(projects[:PROJECTS])
    mine = visible_workloads(actor).select_related("project__cluster", "type", "priority")
    own = mine.filter(submitted_by_kind=str(actor.kind), submitted_by_id=actor.id)
    context = {
        "projects": [(each, rows[each.pk]) for each in projects[:PROJECTS]],
        "more_projects": len(projects) > PROJECTS,
        "needs": needs_attention(own),
        "failed_applies": mine.filter(FAILED_TO_APPLY).count() if standing.holds(Verb.MANAGE_ANY_WORKLOAD) else 0,
        "newest": list(own.order_by("-created_at", "-id")[:NEWEST]),
        "may_submit": standing.projects(Verb.SUBMIT).exists(),
    }
    return render_page(request, "workloads/home.html", context, parts=("today",))
