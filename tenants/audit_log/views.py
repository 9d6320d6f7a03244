"""The audit trail: all of it for platform admins, the own projects' part for those who may read it there."""

from typing import Final

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from portal.kit.db.keyset_pagination import page_of
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.audit_log.selectors import FILTERS, readable_records

PAGE_SIZE: Final = 50


@login_required
@require_safe
def trail(request: HttpRequest) -> HttpResponse:
    """Newest first; filters and page in the URL."""
    chosen = {name: value for name in FILTERS if (value := request.GET.get(name, "").strip()[:100])}
    page = page_of(
        readable_records(actor_of(request), chosen), column="-at", after=request.GET.get("after", ""), size=PAGE_SIZE
    )
    return render_page(
        request,
        "tenants/audit_log/audit_log.html",
        {"page": page, "chosen": chosen, "filters": FILTERS},
        parts=("records",),
    )
