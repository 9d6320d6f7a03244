"""The form of a new usage report: days in UTC, and places that its reader sees."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from django import forms
from django.db.models import CharField, Value
from django.db.models.functions import Concat
from django.utils.translation import gettext_lazy as _

from clusters.inventory.models import Cluster
from portal.kit.pages.forms import Offer, PageForm, SearchField, day_field, midnight
from tenants.access.forms import department_offer, project_offer
from tenants.access.selectors import Access
from tenants.organisation.models import Department, Project
from workloads.reports.models import ReportGroup
from workloads.reports.rules import CLUSTER_ID, DEPARTMENT_NAME, PROJECT_NAME, YEARS

GROUPS: Final = (
    (ReportGroup.PROJECT.value, _("project")),
    (ReportGroup.DEPARTMENT.value, _("department")),
    (ReportGroup.NODE_POOL.value, _("node pool")),
    (ReportGroup.CLUSTER.value, _("cluster")),
)
DAY: Final = timedelta(days=1)


class ReportForm(PageForm):
    """Whole days; the last one only as far as it has come. What may be asked for is the service's to judge."""

    name = forms.CharField(label=_("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    start = day_field(_("From"), years=YEARS)
    end = day_field(_("To"), years=YEARS, help_text=_("Both dates included (UTC)."))
    group_by = forms.ChoiceField(label=_("Group by"), choices=GROUPS)
    filter_by = SearchField(label=_("Scope"), required=False)

    def __init__(self, *args: Any, access: Access, now: datetime, **kwargs: Any) -> None:
        today = now.astimezone(UTC).date()
        kwargs.setdefault("initial", {"start": today - 6 * DAY, "end": today, "group_by": GROUPS[0][0]})
        super().__init__(*args, **kwargs)
        self._now = now
        self._scope.offer(
            department_offer(access.departments()),
            project_offer(access.projects()),
            Offer(Cluster.objects.all(), Concat(Value("cluster "), "name", output_field=CharField())),
            empty=_("everything you can see"),
        )

    @property
    def _scope(self) -> SearchField:
        return cast("SearchField", self.fields["filter_by"])

    @property
    def requested(self) -> dict[str, Any]:
        found = self.cleaned_data
        start, end = midnight(found["start"]), midnight(found["end"]) + DAY
        return {
            "name": found["name"],
            "start": start,
            "end": min(end, self._now) if start < self._now else end,
            "group_by": found["group_by"],
            "filter_by": _filters(self._scope.row_of(found["filter_by"])),
        }


def _filters(place: object) -> list[str]:
    """The filter that names one place; none for everything."""
    match place:
        case Project():
            return [f"{PROJECT_NAME}=={place.name}"]
        case Department():
            return [f"{DEPARTMENT_NAME}=={place.name}", f"{CLUSTER_ID}=={place.cluster_id}"]
        case Cluster():
            return [f"{CLUSTER_ID}=={place.pk}"]
        case _:
            return []
