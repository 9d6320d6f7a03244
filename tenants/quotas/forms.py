"""Amounts as form fields, and the rows of the quotas page: four cells of a resource per department and project."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.forms.utils import flatatt
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from portal.kit.errors import ValidationFailed
from portal.kit.pages.forms import PageForm
from scheduling.model.resources import DIMENSIONS, Limit
from tenants.quotas import rules as quotas_rules
from tenants.quotas.models import Rank
from tenants.quotas.rules import QuotaValues, value_problems
from tenants.quotas.selectors.quota_tree import OwnerKey, QuotaLine
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
        """Stored numbers become text; what a user typed stays."""
        return quotas_rules.format_amount(self.dimension, value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare amounts, not texts: 1.0 is 1."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


class CellInput(forms.TextInput):
    """Rendered without a template: a page has some 400 of them, and 50 rows took 0.6 s with Django's."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """The tag."""
        own, text = self.build_attrs(self.attrs, attrs), self.format_value(value)
        own |= {"type": self.input_type, "name": name} | ({"value": text} if text is not None else {})
        return format_html("<input{}>", flatatt(own))


class HiddenCell(CellInput):
    """The value that a cell was shown with."""

    input_type = "hidden"


class CellSelect(forms.Select):
    """As `CellInput`."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """The tag with its options."""
        options = format_html_join(
            "",
            '<option value="{}"{}>{}</option>',
            ((key, SELECTED if str(key) == str(value) else "", label) for key, label in self.choices),
        )
        own = flatatt(self.build_attrs(self.attrs, attrs))
        return format_html('<select name="{}"{}>{}</select>', name, own, options)


SELECTED: Final = mark_safe(" selected")  # no input
CELL: Final = {"class": "form-control-sm", "autocomplete": "off", "inputmode": "decimal"}
RESOURCES: Final[Mapping[str, str | Promise]] = {"gpu": _("GPUs"), "cpu": _("CPU"), "memory": _("Memory")}
WEIGHTS: Final = {"gpu": "over_quota_weight", "cpu": "cpu_weight", "memory": "memory_weight"}
"""Columns of the over-quota weights."""
LABELS: Final = {
    "gpu": (_("Deserved GPUs"), _("GPU limit")),
    "cpu": (_("Deserved CPU"), _("CPU limit")),
    "memory": (_("Deserved memory"), _("Memory limit")),
}


def _cells(resource: str, gpu_weight: float) -> dict[str, forms.Field]:
    deserved, limit = LABELS[resource]
    counted = resource == "gpu"
    hint = {} if counted else {"placeholder": "–"}
    as_gpus = {} if counted else {"placeholder": f"{gpu_weight:.7g}"}
    return {
        f"{resource}_deserved": AmountField(
            resource, label=deserved, required=counted, show_hidden_initial=True, widget=CellInput({**CELL, **hint})
        ),
        f"{resource}_limit": AmountField(
            resource,
            label=limit,
            required=False,
            show_hidden_initial=True,
            widget=CellInput({**CELL, "placeholder": "∞"}),
        ),
        WEIGHTS[resource]: forms.FloatField(
            label=_("Over-quota weight"),
            required=counted,
            show_hidden_initial=True,
            widget=CellInput({**CELL, **as_gpus}),
        ),
        "rank": forms.ChoiceField(
            label=_("Rank"),
            choices=Rank.choices,
            show_hidden_initial=True,
            widget=CellSelect({"class": "form-select-sm"}),
        ),
    }


class QuotaRowForm(PageForm):
    """Deserved amount, limit and over-quota weight of one resource, and the rank, of one department or project.

    Each cell carries the value that it was shown with, so that only edited cells count, and an edit of
    what another person has changed meanwhile is refused.
    """

    def __init__(self, data: Mapping[str, Any] | None, *, line: QuotaLine, resource: str = "gpu") -> None:
        self.line, self.resource = line, resource
        now = line.quota
        weight = getattr(now, WEIGHTS[resource])
        initial = {
            f"{resource}_deserved": getattr(now.deserved, resource),
            f"{resource}_limit": getattr(now.limit, resource),
            WEIGHTS[resource]: None if weight is None else f"{weight:.7g}",
            "rank": now.rank,
        }
        self.field_at = {
            f"/{resource}/deserved": f"{resource}_deserved",
            f"/{resource}/limit": f"{resource}_limit",
            f"/{resource}/overQuotaWeight": WEIGHTS[resource],
            "/rank": "rank",
        }
        super().__init__(data, prefix=prefix_of(line.key), initial=initial)
        for name, field in _cells(resource, now.over_quota_weight).items():
            kind = "form-select" if name == "rank" else "form-control"
            field.widget.attrs["class"] = f"{kind} {field.widget.attrs['class']}"
            field.help_text, field.hidden_widget = "", HiddenCell  # a cell has no room for help
            field.widget.attrs["aria-label"] = f"{field.label}: {line.owner.name}"
            field.widget.attrs["data-cell"] = name
            self.fields[name] = field

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
        """The quota with the edited cells; all else, other resources too, as it is stored."""
        before, edited = self.line.quota, {name: self.cleaned_data[name] for name in self.changed_data}
        name, weight = self.resource, WEIGHTS[self.resource]
        changed = before._replace(
            deserved=_with(before.deserved, name, edited.get(f"{name}_deserved", getattr(before.deserved, name))),
            limit=_with(before.limit, name, edited.get(f"{name}_limit", getattr(before.limit, name))),
            rank=edited.get("rank", before.rank),
        )
        return values_of(changed._replace(**{weight: edited.get(weight, getattr(before, weight))}))


def _with(amounts: Limit, name: str, amount: int | None) -> Limit:
    return Limit(**{each: getattr(amounts, each) for each in DIMENSIONS} | {name: amount})


def prefix_of(key: OwnerKey) -> str:
    return f"{key.kind}-{key.pk}"


class ReasonForm(PageForm):
    """Why the quotas are changed."""

    reason = forms.CharField(label=_("Reason"), max_length=500, help_text=_("Kept in the history."))
