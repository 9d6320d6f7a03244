"""The form of a new usage report: days in UTC, and places that its reader sees."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, cast

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.utils.translation import gettext_lazy as _

from clusters.inventory.models import Cluster
from portal.kit.pages.forms import PageForm
from tenants.access.selectors import Access
from workloads.reports.models import ReportGroup
from workloads.reports.rules import CLUSTER_ID, DEPARTMENT_NAME, PROJECT_NAME, YEARS

GROUPS: Final = (
    (ReportGroup.PROJECT.value, _("project")),
    (ReportGroup.DEPARTMENT.value, _("department")),
    (ReportGroup.NODE_POOL.value, _("node pool")),
    (ReportGroup.CLUSTER.value, _("cluster")),
)
DAY: Final = timedelta(days=1)


FIRST: Final = date(YEARS.start, 1, 1)
LAST: Final = date(YEARS.stop - 1, 12, 31)


def _day(label: Any, **more: Any) -> forms.DateField:
    bounds = [MinValueValidator(FIRST), MaxValueValidator(LAST)]
    widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
    return forms.DateField(label=label, widget=widget, input_formats=["%Y-%m-%d"], validators=bounds, **more)


class ReportForm(PageForm):
    """Whole days; the last one only as far as it has come. What may be asked for is the service's to judge."""

    name = forms.CharField(label=_("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    start = _day(_("From"))
    end = _day(_("To"), help_text=_("Both dates included (UTC)."))
    group_by = forms.ChoiceField(label=_("Group by"), choices=GROUPS)
    filter_by = forms.ChoiceField(label=_("Scope"), required=False)

    def __init__(self, *args: Any, standing: Access, now: datetime, **kwargs: Any) -> None:
        today = now.astimezone(UTC).date()
        kwargs.setdefault("initial", {"start": today - 6 * DAY, "end": today, "group_by": GROUPS[0][0]})
        super().__init__(*args, **kwargs)
        self._now = now
        cast("forms.ChoiceField", self.fields["filter_by"]).choices = _places(standing)

    @property
    def asked(self) -> dict[str, Any]:
        found, chosen = self.cleaned_data, self.cleaned_data["filter_by"]
        start, end = _midnight(found["start"]), _midnight(found["end"]) + DAY
        return {
            "name": found["name"],
            "start": start,
            "end": min(end, self._now) if start < self._now else end,
            "group_by": found["group_by"],
            "filter_by": [chosen] if chosen else [],
        }


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


def _places(standing: Access) -> Sequence[tuple[Any, Any]]:
    """Everything, or one place, by the filter that names it."""
    departments = standing.departments().order_by("name").values_list("name", flat=True).distinct()
    projects = standing.projects().order_by("name").values_list("name", flat=True)
    clusters = Cluster.objects.order_by("name").values_list("pk", "name")
    groups: list[tuple[Any, list[tuple[str, str]]]] = [
        (_("One department"), [(f"{DEPARTMENT_NAME}=={name}", name) for name in departments]),
        (_("One project"), [(f"{PROJECT_NAME}=={name}", name) for name in projects]),
        (_("One cluster"), [(f"{CLUSTER_ID}=={key}", name) for key, name in clusters]),
    ]
    return [("", _("everything you can see")), *(group for group in groups if group[1])]
