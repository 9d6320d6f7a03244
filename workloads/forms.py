"""Forms of the workloads' pages. They carry what people typed; what it means is decided by intake and services."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from portal.core.pageforms import PageForm
from workloads.apply_failures import FAILED_TO_APPLY
from workloads.forecasts import Alternative
from workloads.models import Category, Phase, PreemptionPolicy, Priority, Workload, WorkloadType
from workloads.models.dictionary import HIGHEST_VALUE, LOWEST_VALUE
from workloads.presets import Preset

PREEMPTIBILITIES: Final = ("preemptible", "semi-preemptible", "non-preemptible")
SORTS: Final = {
    "newest": ("-created_at", _("newest first")),
    "oldest": ("created_at", _("oldest first")),
    "name": ("name", _("name")),
    "priority": ("-priority_value", _("highest priority first")),
    "gpus": ("-gpu_milli", _("most GPUs first")),
    "changed": ("-phase_at", _("last change first")),
}
LOOKUPS: Final = {"q": "name__icontains", **{name: f"{name}__name" for name in ("project", "type", "priority")}}
LONGEST_SHOWN: Final = 63
WORDS: Final = {Phase.PENDING: _("Waiting (Pending)")}


def _select(choices: list[tuple[str, Any]], empty: Any) -> forms.ChoiceField:
    select = forms.Select(attrs={"class": "form-select form-select-sm"})
    return forms.ChoiceField(choices=[("", empty), *choices], required=False, widget=select)


def _shown(value: str) -> str:
    return "".join(filter(str.isprintable, value[:LONGEST_SHOWN]))


class WorkloadFilter(forms.Form):
    """The filter of the table, read from the URL. A value that names nothing leaves no row and is shown."""

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
        self.fields["result"] = _select([("failed-to-apply", _("failed to apply"))], _("any result"))
        self.fields["project"] = _select([(name, name) for name in projects], _("any project"))
        self.fields["type"] = _select(list(types), _("any type"))
        self.fields["priority"] = _select([(name, name) for name in priorities], _("any priority"))
        self.fields["preemptibility"] = _select([(each, each) for each in PREEMPTIBILITIES], _("any"))
        self.fields["sort"] = _select([(name, title) for name, (_column, title) in SORTS.items()], _("newest first"))
        for name, field in self.fields.items():
            field.label = field.label or _(name.capitalize())

    @property
    def chosen(self) -> dict[str, str]:
        """The filters that are set, without the order."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value and name != "sort"}

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
        if chosen.pop("result", ""):
            rows = rows.filter(FAILED_TO_APPLY)
        return rows.filter(**{LOOKUPS.get(name, name): value for name, value in chosen.items()})


class PriorityForm(PageForm):
    """One dictionary entry. Its bounds are repeated by the service, which decides."""

    FIELDS: Final = ("value", "preemption_policy", "description")

    name = forms.CharField(max_length=63, label=_("Name"), help_text=_("Lower-case letters, digits and inner dashes."))
    value = forms.IntegerField(
        min_value=LOWEST_VALUE,
        max_value=HIGHEST_VALUE,
        label=_("Value"),
        help_text=_("100 or more is non-preemptible unless set otherwise. Unique among the offered entries."),
    )
    preemption_policy = forms.ChoiceField(
        choices=PreemptionPolicy.choices,
        label=_("Preemption policy"),
        help_text=_("Never: evicts nobody. It does not protect its own pods, and KAI ignores it."),
    )
    description = forms.CharField(max_length=500, required=False, label=_("Description"))

    def __init__(self, *args: Any, old: Priority | None = None, **kwargs: Any) -> None:
        initial = {name: getattr(old, name) for name in ("name", *self.FIELDS)} if old else None
        super().__init__(*args, initial=initial, **kwargs)

    def clean(self) -> dict[str, Any]:
        """A PriorityClass keeps its name, so a rename is a new entry and comes alone."""
        values = super().clean() or self.cleaned_data
        if self.initial and "name" in self.changed_data and len(self.changed_data) > 1:
            self.add_error("name", _("Rename alone: plan the other changes before or after it."))
        return values

    def change(self) -> dict[str, Any]:
        """What this form asks for, as a plan's operation."""
        new, old = self.cleaned_data, self.initial.get("name")
        if old is None:
            return {"op": "add", **new}
        if new["name"] != old:
            return {"op": "rename", "name": old, "new_name": new["name"]}
        return {"op": "change", "name": old, **{name: new[name] for name in self.FIELDS if name in self.changed_data}}


class TypeForm(PageForm):
    """A workload type's defaults."""

    category = forms.ModelChoiceField(Category.objects.all(), to_field_name="name", required=False, label=_("Category"))
    priority = forms.ModelChoiceField(
        Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True).order_by("-value"),
        to_field_name="name",
        required=False,
        label=_("Default priority"),
        empty_label=_("no default: people must choose"),
    )
    preemptibility = forms.ChoiceField(
        choices=[("", _("no default: the threshold of 100 decides")), *((each, each) for each in PREEMPTIBILITIES)],
        required=False,
        label=_("Default preemptibility"),
    )

    @classmethod
    def of(cls, row: WorkloadType) -> dict[str, Any]:
        """Initial values of the edit form."""
        return {"category": row.category, "priority": row.priority, "preemptibility": row.preemptibility}

    def change(self) -> dict[str, str]:
        """What this form asks for, by name; empty fields stay as they are."""
        chosen = self.cleaned_data
        named = {name: str(chosen[name]) for name in ("category", "priority", "preemptibility") if chosen[name]}
        return {name: value for name, value in named.items() if value != str(self.initial.get(name) or "")}


class PresetForm(PageForm):
    """What a preset asks before it can be planned: may each category or type be evicted?"""

    def __init__(self, *args: Any, preset: Preset, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "–"), *((each, each) for each in PREEMPTIBILITIES)]
        for name in preset.types if preset.asks_preemptibility else ():
            select = forms.Select(attrs={"class": "form-select"})
            self.fields[name] = forms.ChoiceField(choices=choices, label=name, required=False, widget=select)

    @property
    def preemptibilities(self) -> Mapping[str, str]:
        """Answers by category or type."""
        return {name: value for name, value in self.cleaned_data.items() if value}


def pointers_of(names: Iterable[str]) -> dict[str, str]:
    """Pointers of a preset's answers to the fields that ask for them."""
    return {f"/preemptibilities/{name}": name for name in names}


class WayOutForm(forms.Form):
    """A way out of a wait, as the workload's page offers it: one of these, sizes in whole devices, cores and GiB."""

    preemptibility = forms.ChoiceField(choices=[(each, each) for each in PREEMPTIBILITIES], required=False)
    node_pool = forms.CharField(max_length=63, required=False)
    gpus = forms.IntegerField(min_value=1, max_value=64, required=False)
    cpu = forms.IntegerField(min_value=1, max_value=10_000, required=False)
    memory = forms.IntegerField(min_value=1, max_value=1_000_000, required=False)

    def clean(self) -> dict[str, Any]:
        """Something has to be another."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not any(given.values()):
            raise forms.ValidationError("nothing")
        return given

    @property
    def way(self) -> Alternative:
        """What is to be another."""
        given = self.cleaned_data
        return Alternative(
            "",
            preemptibility=given["preemptibility"],
            gpus_per_pod=given["gpus"],
            cpus_per_pod=given["cpu"],
            gib_per_pod=given["memory"],
            pool=given["node_pool"],
        )
