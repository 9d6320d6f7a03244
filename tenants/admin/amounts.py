"""Fields of the console for amounts: typed in GPUs, cores and gibibytes, stored in thousandths and bytes."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from tenants import amounts

HELP = {
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
            return amounts.parse(self.dimension, text or "")
        except ValueError as error:
            raise forms.ValidationError(str(error), code="invalid") from None

    def run_validators(self, value: Any) -> None:
        """Length was bounded by the widget's text; the number needs none."""

    def clean(self, value: Any) -> Any:
        """Bound the text before anything reads it."""
        if isinstance(value, str) and len(value) > 50:
            raise forms.ValidationError(_("This is too long for an amount."), code="max_length")
        return super().clean(value)

    def prepare_value(self, value: Any) -> Any:
        """Stored numbers become text; what somebody typed stays."""
        return amounts.render(self.dimension, value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare amounts, not texts: 1.0 is 1."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True
