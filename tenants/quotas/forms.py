"""Amounts as form fields, and the rows of the quotas page: four cells for each department and project."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from portal.kit.errors import ValidationFailed
from portal.kit.pages.forms import PageForm
from scheduling.model.resources import Limit
from tenants.quotas import rules as quotas_rules
from tenants.quotas.models import Rank
from tenants.quotas.selectors.quota_tree import OwnerKey, QuotaLine
from tenants.quotas.services.quota_values import QuotaValues, value_problems
from tenants.quotas.services.what_if import values_of

HELP: Final = {
    "gpu": _("In GPUs, such as 6 or 0.5."),
    "cpu": _("In cores, such as 64 or 500m."),
    "memory": _("With its unit, such as 512Gi."),
}


class AmountField(forms.CharField):
    """An amount of one dimension; empty text is None."""

    def __init__(self, dimension: str, *, empty: str = "", **kwargs: Any) -> None:
        self.dimension = dimension
        help_text = f"{HELP[dimension]} {empty}".strip()
        super().__init__(max_length=50, strip=True, help_text=help_text, **kwargs)

    def to_python(self, value: Any) -> Any:
        """The amount as an exact whole number of its unit."""
        text = super().to_python(value)
        try:
            return quotas_rules.parse_amount(self.dimension, text or "")
        except ValueError as error:
            raise forms.ValidationError(str(error), code="invalid") from None

    def run_validators(self, value: Any) -> None:
        """Length was bounded by the widget's text; the number needs none."""

    def clean(self, value: Any) -> Any:
        """Bound the text before anything reads it."""
        if isinstance(value, str) and len(value) > 50:
            raise forms.ValidationError(_("Too long for an amount."), code="max_length")
        return super().clean(value)

    def prepare_value(self, value: Any) -> Any:
        """Stored numbers become text; what somebody typed stays."""
        return quotas_rules.format_amount(self.dimension, value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare amounts, not texts: 1.0 is 1."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


def _cell(**attrs: str) -> forms.TextInput:
    return forms.TextInput({"class": "form-control-sm", "autocomplete": "off", "inputmode": "decimal", **attrs})


class QuotaRowForm(PageForm):
    """Deserved GPUs, GPU limit, over-quota weight and rank of one department or project.

    Each cell carries the value that it was shown with, so that only cells that somebody edited count, and an edit of
    what another person has changed meanwhile is refused.
    """

    gpu_deserved = AmountField("gpu", label=_("Deserved GPUs"), show_hidden_initial=True, widget=_cell())
    gpu_limit = AmountField(
        "gpu", label=_("GPU limit"), required=False, show_hidden_initial=True, widget=_cell(placeholder="∞")
    )
    over_quota_weight = forms.FloatField(label=_("Over-quota weight"), show_hidden_initial=True, widget=_cell())
    rank = forms.ChoiceField(
        label=_("Rank"),
        choices=Rank.choices,
        show_hidden_initial=True,
        widget=forms.Select({"class": "form-select-sm"}),
    )
    field_at: Mapping[str, str] = {
        "/gpu/deserved": "gpu_deserved",
        "/gpu/limit": "gpu_limit",
        "/gpu/overQuotaWeight": "over_quota_weight",
        "/rank": "rank",
    }

    def __init__(self, data: Mapping[str, Any] | None, *, line: QuotaLine) -> None:
        self.line = line
        now = line.quota
        initial = {
            "gpu_deserved": now.deserved.gpu or 0,
            "gpu_limit": now.limit.gpu,
            "over_quota_weight": f"{now.over_quota_weight:.7g}",
            "rank": now.rank,
        }
        super().__init__(data, prefix=prefix_of(line.key), initial=initial)
        for name, field in self.fields.items():
            field.help_text = ""  # a cell has no room for it
            field.widget.attrs["aria-label"] = f"{field.label}: {line.owner.name}"
            field.widget.attrs["data-cell"] = name

    def clean(self) -> dict[str, Any]:
        """Edited cells only: against what is stored now, and against each other."""
        for name in self.changed_data:
            if name in self.cleaned_data and self._was(name) != self._is(name):
                text = _now("Changed to %(value)s since you opened the page.")
                self.add_error(name, text % {"value": self[name].field.prepare_value(self.initial[name]) or "∞"})
        if not self.errors and (problems := list(value_problems(self.values))):
            self.show(ValidationFailed(problems[0].message, problems=problems), self.field_at)
        return self.cleaned_data

    def _was(self, name: str) -> Any:
        """The value that the cell was shown with."""
        return self.fields[name].to_python(self.data.get(self[name].html_initial_name, ""))

    def _is(self, name: str) -> Any:
        value = self.initial[name]
        return value if isinstance(value, int | None) else self.fields[name].to_python(value)

    @property
    def values(self) -> QuotaValues:
        """The quota with the edited cells; all else, CPU and memory too, as it is stored."""
        before, edited = self.line.quota, {name: self.cleaned_data[name] for name in self.changed_data}
        weight = edited.get("over_quota_weight", before.over_quota_weight)
        changed = before._replace(
            deserved=Limit(
                edited.get("gpu_deserved", before.deserved.gpu), before.deserved.cpu, before.deserved.memory
            ),
            limit=Limit(edited.get("gpu_limit", before.limit.gpu), before.limit.cpu, before.limit.memory),
            over_quota_weight=weight,
            rank=edited.get("rank", before.rank),
        )
        return values_of(changed)


def prefix_of(key: OwnerKey) -> str:
    return f"{key.kind}-{key.pk}"


class ReasonForm(PageForm):
    """Why the quotas are changed."""

    reason = forms.CharField(label=_("Reason"), max_length=500, help_text=_("Kept in the history."))
