"""Forms of the workloads' pages. They carry what people typed; what it means is decided by intake and services."""

from typing import Any, Final

from django import forms
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from clusters.inventory.models import Cluster, Node, NodePool
from portal.kit.pages.forms import PAGE_RENDERER, Offer, SearchField
from tenants.organisation.models import Project
from workloads.dictionary.forms import PREEMPTIBILITIES
from workloads.dictionary.models import Priority, WorkloadType
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import EVICTED, FAILED_TO_APPLY, on_node

SORTS: Final = {
    "newest": ("-created_at", _("newest")),
    "oldest": ("created_at", _("oldest")),
    "name": ("name", _("name")),
    "priority": ("-priority_value", _("highest priority")),
    "gpus": ("-gpu_milli", _("most GPUs")),
    "changed": ("-phase_at", _("last change")),
}
LOOKUPS: Final = {
    "q": "name__icontains",
    "pool": "pool_name",
    "by": "submitted_by",
    **{name: f"{name}__name" for name in ("project", "type", "priority")},
}
DELETED: Final = "deleted"
RESULTS: Final = {
    "failed-to-apply": (FAILED_TO_APPLY, _("failed to apply")),
    "evicted": (EVICTED, _("was evicted")),
    DELETED: (Q(deleted_at__isnull=False), _("deleted")),
}
SMALL: Final = {"class": "form-control form-control-sm"}
LONGEST_SHOWN: Final = 63
WORDS: Final = {Phase.PENDING: _("Waiting (Pending)")}


def _select(choices: list[tuple[str, Any]], empty: Any) -> forms.ChoiceField:
    select = forms.Select(attrs={"class": "form-select form-select-sm"})
    return forms.ChoiceField(choices=[("", empty), *choices], required=False, widget=select)


def _shown(value: str) -> str:
    return "".join(filter(str.isprintable, value[:LONGEST_SHOWN]))


class WorkloadFilter(forms.Form):
    """The filter of the table, read from the URL. A value that names nothing leaves no row and is shown."""

    default_renderer = PAGE_RENDERER

    q = forms.CharField(
        required=False,
        max_length=100,
        label=_("Name contains"),
        widget=forms.TextInput(attrs={**SMALL, "type": "search", "placeholder": "/"}),
    )

    def __init__(self, *args: Any, projects: QuerySet[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._projects = projects
        priorities = Priority.objects.order_by("-value").values_list("name", flat=True)
        types = WorkloadType.objects.values_list("name", "title")
        self.fields["phase"] = _select([(each.value, WORDS.get(each, each.value)) for each in Phase], _("any"))
        self.fields["result"] = _select([(name, title) for name, (_rows, title) in RESULTS.items()], _("any"))
        for name, rows in (
            ("project", projects),
            ("cluster", Cluster.objects.all()),
            ("pool", NodePool.objects.distinct()),
        ):
            self.fields[name] = search = SearchField(required=False)
            search.offer(Offer(rows), empty=_("any"), size="sm")
        self.fields["node"] = forms.CharField(required=False, widget=forms.TextInput(attrs=SMALL))
        self.fields["by"] = forms.CharField(
            required=False, label=_("Submitted by"), widget=forms.TextInput(attrs=SMALL)
        )
        self.fields["type"] = _select(list(types), _("any"))
        self.fields["priority"] = _select([(name, name) for name in priorities], _("any"))
        self.fields["preemptibility"] = _select([(each, each) for each in PREEMPTIBILITIES], _("any"))
        self.fields["sort"] = _select([(name, title) for name, (_column, title) in SORTS.items()], _("newest"))
        for name, field in self.fields.items():
            field.label = field.label or _(name.capitalize())

    def clean_node(self) -> str:
        """The name of a node of any cluster."""
        name = str(self.cleaned_data["node"])
        if name and not Node.objects.filter(name=name).exists():
            raise forms.ValidationError(_("Node not found."))
        return name

    @property
    def chosen(self) -> dict[str, str]:
        """The filters that are set, without the order."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value and name != "sort"}

    @property
    def wants_deleted(self) -> bool:
        """Whether only deleted workloads are wanted, which no other list shows."""
        return self.chosen.get("result") == DELETED

    @property
    def unknown(self) -> dict[str, str]:
        """The filters that name something that is not there, or not the reader's to see, as they were sent."""
        return {name: _shown(str(self.data[name])) for name in self.errors if name != "sort"}

    @property
    def column(self) -> str:
        """The database column to sort by, with a minus for descending."""
        self.is_valid()
        return SORTS.get(self.cleaned_data.get("sort", ""), SORTS["newest"])[0]

    def narrow(self, rows: QuerySet[Workload]) -> QuerySet[Workload]:
        """The rows that the filter leaves."""
        if self.unknown:
            return rows.none()
        chosen = self.chosen
        if result := chosen.pop("result", ""):
            rows = rows.filter(RESULTS[result][0])
        if cluster := chosen.pop("cluster", ""):
            # As a list: the database then knows whether few or many rows have one of these projects.
            rows = rows.filter(
                project__in=list(self._projects.filter(cluster__name=cluster).values_list("pk", flat=True))
            )
        if node := chosen.pop("node", ""):
            rows = rows.filter(on_node(node))
        return rows.filter(**{LOOKUPS.get(name, name): value for name, value in chosen.items()})
