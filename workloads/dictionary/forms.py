"""Forms of priorities, workload types and presets. Services decide what the values mean."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from portal.kit.pages.forms import PageForm
from workloads.dictionary.models import HIGHEST_VALUE, LOWEST_VALUE, Category, PreemptionPolicy, Priority, WorkloadType
from workloads.dictionary.rules.presets import Preset

PREEMPTIBILITIES: Final = ("preemptible", "semi-preemptible", "non-preemptible")


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
        help_text=_("Never: does not evict others. It does not protect its own pods. KAI ignores it."),
    )
    description = forms.CharField(max_length=500, required=False, label=_("Description"))

    def __init__(self, *args: Any, old: Priority | None = None, **kwargs: Any) -> None:
        initial = {name: getattr(old, name) for name in ("name", *self.FIELDS)} if old else None
        super().__init__(*args, initial=initial, **kwargs)

    def clean(self) -> dict[str, Any]:
        """A PriorityClass keeps its name, so a rename is a new entry and comes alone."""
        values = super().clean() or self.cleaned_data
        if self.initial and "name" in self.changed_data and len(self.changed_data) > 1:
            self.add_error("name", _("Rename in a separate step, before or after other changes."))
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
    category = forms.ModelChoiceField(Category.objects.all(), to_field_name="name", required=False, label=_("Category"))
    priority = forms.ModelChoiceField(
        Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True).order_by("-value"),
        to_field_name="name",
        required=False,
        label=_("Default priority"),
        empty_label=_("no default (required)"),
    )
    preemptibility = forms.ChoiceField(
        choices=[("", _("by priority (100 and above: non-preemptible)")), *((each, each) for each in PREEMPTIBILITIES)],
        required=False,
        label=_("Default preemptibility"),
    )

    @classmethod
    def of(cls, row: WorkloadType) -> dict[str, Any]:
        """Initial values of the edit form."""
        return {"category": row.category, "priority": row.priority, "preemptibility": row.preemptibility}

    def has_changed(self) -> bool:
        """Only what it asks for counts; the form is valid."""
        return bool(self.change())

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
        return {name: value for name, value in self.cleaned_data.items() if value}


def pointers_of(names: Iterable[str]) -> dict[str, str]:
    """Pointers of a preset's answers to the fields that ask for them."""
    return {f"/preemptibilities/{name}": name for name in names}
