"""The page of findings."""

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from clusters.inventory.models import Cluster
from portal.kit.db.keyset_pagination import page_of
from portal.kit.pages.forms import PAGE_RENDERER
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from workloads.detectors.models import Finding
from workloads.detectors.selectors import (
    ENDED,
    OPEN,
    TITLES,
    checks_for,
    in_state,
    readable_findings,
    visible_findings,
)

PAGE_SIZE: Final = 25
RECENT: Final = timedelta(days=7)
STATES: Final = (("", _("open or ended")), (OPEN, _("open")), (ENDED, _("ended")))


class FindingFilter(forms.Form):
    """The filter of the page, read from the URL. A value that names nothing leaves no row."""

    default_renderer = PAGE_RENDERER

    kind = forms.ChoiceField(label=_("Kind"), choices=[("", _("any kind")), *TITLES.items()], required=False)
    cluster = forms.ChoiceField(label=_("Cluster"), required=False)
    status = forms.ChoiceField(label=_("Status"), choices=STATES, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Cluster.objects.order_by("name").values_list("name", flat=True)
        self.fields["cluster"].choices = [("", _("any cluster")), *((name, name) for name in names)]  # type: ignore[attr-defined]
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-select form-select-sm"

    def narrow(self, rows: QuerySet[Finding]) -> QuerySet[Finding]:
        """The rows that the filter leaves."""
        if not self.is_valid():
            return rows.none()
        chosen = self.cleaned_data
        places = {"kind": chosen["kind"], "cluster__name": chosen["cluster"]}
        return in_state(rows.filter(**{name: value for name, value in places.items() if value}), chosen["status"])


@login_required
@require_safe
def findings(request: HttpRequest) -> HttpResponse:
    """What is open, and what was found in the last seven days; last seen first."""
    actor = actor_of(request)
    wanted, now = FindingFilter(request.GET), timezone.now()
    recent = Q(ended_at=None) | Q(last_seen__gte=now - RECENT)
    rows = wanted.narrow(visible_findings(actor).filter(recent))
    page = page_of(rows, column="-last_seen", after=request.GET.get("after", ""), size=PAGE_SIZE)
    context = {
        "filter": wanted,
        "page": page,
        "findings": readable_findings(page.rows, actor),
        "checks": checks_for(actor, now=now, cluster=wanted.cleaned_data.get("cluster", "")),
        "days": RECENT.days,
    }
    return render_page(request, "workloads/detectors/findings.html", context, parts=("table",))
