"""Forms of the workloads' pages. They carry what people typed; what it means is decided by intake and services."""

from typing import Any, Final
from uuid import UUID

from django import forms
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from workloads.models import Phase, Priority, Workload, WorkloadType

PREEMPTIBILITIES: Final = ("preemptible", "semi-preemptible", "non-preemptible")
SORTS: Final = {
    "newest": ("-created_at", _("newest first")),
    "oldest": ("created_at", _("oldest first")),
    "name": ("name", _("name")),
    "priority": ("-priority_value", _("highest priority first")),
    "gpus": ("-gpu_milli", _("most GPUs first")),
    "changed": ("-phase_at", _("last change first")),
}
WORDS: Final = {Phase.PENDING: _("Waiting (Pending)")}


def _select(choices: list[tuple[str, Any]], empty: Any) -> forms.ChoiceField:
    select = forms.Select(attrs={"class": "form-select form-select-sm"})
    return forms.ChoiceField(choices=[("", empty), *choices], required=False, widget=select)


class WorkloadFilter(forms.Form):
    """The filter of the table, read from the URL. What it does not know is ignored."""

    q = forms.CharField(
        required=False,
        max_length=100,
        label=_("Name contains"),
        widget=forms.TextInput(attrs={"class": "form-control form-control-sm", "type": "search", "placeholder": "/"}),
    )

    def __init__(self, *args: Any, projects: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        priorities = Priority.objects.order_by("-value").values_list("name", flat=True)
        types = WorkloadType.objects.values_list("name", "title")
        self.fields["phase"] = _select([(each.value, WORDS.get(each, each.value)) for each in Phase], _("any phase"))
        self.fields["project"] = _select([(name, name) for name in projects], _("any project"))
        self.fields["type"] = _select(list(types), _("any type"))
        self.fields["priority"] = _select([(name, name) for name in priorities], _("any priority"))
        self.fields["preemptibility"] = _select([(each, each) for each in PREEMPTIBILITIES], _("any preemptibility"))
        self.fields["sort"] = _select([(name, title) for name, (_column, title) in SORTS.items()], _("newest first"))
        for name, field in self.fields.items():
            field.label = field.label or _(name.capitalize())

    @property
    def chosen(self) -> dict[str, str]:
        """The filters that are set, without the order."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value and name != "sort"}

    @property
    def column(self) -> str:
        """The database column to sort by, with a minus for descending."""
        self.is_valid()
        return SORTS.get(self.cleaned_data.get("sort", ""), SORTS["newest"])[0]

    def narrow(self, rows: QuerySet[Workload]) -> QuerySet[Workload]:
        """The rows that the filter leaves."""
        chosen = self.chosen
        lookups = {"q": "name__icontains", "project": "project__name", "type": "type__name", "priority": "priority__name"}
        return rows.filter(Q(**{lookups.get(name, name): value for name, value in chosen.items()}))
