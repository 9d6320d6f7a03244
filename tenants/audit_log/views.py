"""The audit trail: all of it for platform admins, the own projects' part for those who may read it there."""

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from portal.audit.models import AuditRecord, Result
from portal.kit.api.lists import YEARS
from portal.kit.db.keyset_pagination import page_of
from portal.kit.pages.forms import PageForm, day_field, midnight
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.audit_log.selectors import chain_state, readable_records
from tenants.audit_log.serializers import log_file, with_audit_columns

PAGE_SIZE: Final = 50
LARGEST_FILE: Final = 10_000
"""Records of a downloaded file, which is built in memory."""
DAY: Final = timedelta(days=1)
LOOKUPS: Final = {
    "who": "actor_name__icontains",
    "action": "action__istartswith",
    "what": "entity_name__icontains",
    "result": "result",
}
OF_SESSIONS: Final = Q(action__in=("session.start", "session.end"), result=Result.SUCCEEDED)
SESSIONS: Final = (("", _("all")), ("failed", _("only failed")))


class AuditFilter(PageForm):
    """The filter of the page, read from the URL. An invalid one leaves no record and shows the error at its field."""

    who = forms.CharField(label=_("Who contains"), max_length=100, widget=forms.TextInput(attrs={"type": "search"}))
    action = forms.CharField(
        label=_("Action begins with"), max_length=100, widget=forms.TextInput(attrs={"placeholder": "workload."})
    )
    what = forms.CharField(label=_("What contains"), max_length=100)
    result = forms.ChoiceField(label=_("Result"), choices=[("", _("any")), *Result.choices])
    sessions = forms.ChoiceField(label=_("Sign-ins, sign-outs"), choices=SESSIONS)
    start = day_field(_("From (UTC)"), years=YEARS)
    end = day_field(_("To (UTC), included"), years=YEARS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.required = field.widget.is_required = False
            field.widget.attrs["class"] += (
                " form-select-sm" if isinstance(field, forms.ChoiceField) else " form-control-sm"
            )

    def clean(self) -> dict[str, Any]:
        """Refuse a period that ends before it starts."""
        first, last = self.cleaned_data.get("start"), self.cleaned_data.get("end")
        if first and last and last < first:
            self.add_error("end", _("Must not be before “From”."))
        return self.cleaned_data

    @property
    def chosen(self) -> dict[str, str]:
        """The filters that are set and valid."""
        self.is_valid()
        return {name: str(value) for name, value in self.cleaned_data.items() if value}

    def narrow(self, rows: QuerySet[AuditRecord]) -> QuerySet[AuditRecord]:
        """The records that the filter leaves."""
        if not self.is_valid():
            return rows.none()
        values = self.cleaned_data
        if values["start"]:
            rows = rows.filter(at__gte=midnight(values["start"]))
        if values["end"]:
            rows = rows.filter(at__lt=midnight(values["end"]) + DAY)
        if values["sessions"]:
            rows = rows.exclude(OF_SESSIONS)
        return rows.filter(**{lookup: values[name] for name, lookup in LOOKUPS.items() if values[name]})


@login_required
@require_safe
def trail(request: HttpRequest) -> HttpResponse:
    """Newest first; filters and page in the URL."""
    actor, wanted = actor_of(request), AuditFilter(request.GET)
    rows = wanted.narrow(readable_records(actor))
    page = page_of(rows, column="-at", after=request.GET.get("after", ""), size=PAGE_SIZE)
    context = {"page": page, "filter": wanted, "chain": chain_state(actor), "largest_file": LARGEST_FILE}
    return render_page(request, "tenants/audit_log/audit_log.html", context, parts=("records",))


@login_required
@require_safe
def log_download(request: HttpRequest, kind: str) -> HttpResponse:
    """The newest records that the page's filter leaves, in the columns of REST. An invalid filter: back to the page."""
    wanted = AuditFilter(request.GET)
    if not wanted.is_valid():
        return redirect(f"{reverse('tenants:audit')}?{request.GET.urlencode()}")
    rows = with_audit_columns(wanted.narrow(readable_records(actor_of(request))))
    return log_file(rows.order_by("-at", "-id")[:LARGEST_FILE].iterator(), kind.upper())
