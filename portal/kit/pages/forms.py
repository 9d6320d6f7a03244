"""Forms of the pages: Tabler's classes on every widget, and refusals of services shown at their fields."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Final

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import CharField, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast
from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template import loader
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from portal.kit.errors import RungError, ValidationFailed

CLASSES: Final[Mapping[type[forms.Widget], str]] = {
    forms.CheckboxSelectMultiple: "",  # a class would be the whole list's
    forms.RadioSelect: "form-check-input",
    forms.CheckboxInput: "form-check-input",
    forms.Select: "form-select",
}
NOTHING: Final[Mapping[str, str]] = {}
REQUIRED: Final = "required"


class PageRenderer(DjangoTemplates):
    """Django's widgets inside our own field."""

    field_template_name = "components/field.html"

    def get_template(self, template_name: str) -> Any:
        """Our templates lie with the pages, the widgets' with Django."""
        if template_name == self.field_template_name:
            return loader.get_template(template_name)
        if template_name == forms.Select.template_name:
            return loader.get_template("components/select.html")
        return super().get_template(template_name)


PAGE_RENDERER: Final = PageRenderer()
"""One for all forms: each keeps the templates of its widgets."""


class PageForm(forms.Form):
    """A form as the pages draw it."""

    default_renderer = PAGE_RENDERER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            kind = next((css for widget, css in CLASSES.items() if isinstance(field.widget, widget)), "form-control")
            field.widget.attrs["class"] = f"{kind} {field.widget.attrs.get('class', '')}".strip()

    @property
    def missing(self) -> list[str]:
        """Labels of the required fields that are empty."""
        return [str(self[name].label) for name, error in self._field_errors() if error.code == REQUIRED]

    @property
    def invalid(self) -> list[tuple[str, str]]:
        """Label and message of every other error at a field."""
        return [
            (str(self[name].label), message)
            for name, error in self._field_errors()
            if error.code != REQUIRED
            for message in error.messages
        ]

    def check_changed(self) -> None:
        """Raise ValidationFailed for a valid form that was sent as it was shown: there is nothing to plan."""
        if not self.has_changed():
            raise ValidationFailed(_now("Nothing was changed."), code="unchanged")

    def _field_errors(self) -> list[tuple[str, forms.ValidationError]]:
        found = self.errors.as_data()
        return [(name, error) for name in self.fields for error in found.get(name, [])]

    def show(self, error: RungError, fields: Mapping[str, str] = NOTHING) -> None:
        """Put each problem at its field; `fields` maps pointers to field names; others appear above the form."""
        if not error.problems:
            self.add_error(None, error.message)
        for problem in error.problems:
            name = fields.get(problem.pointer) or _field_of(problem.pointer)
            if name in self.fields:
                self.add_error(name, problem.message)
            else:
                where = f"{problem.pointer}: " if problem.pointer else ""
                self.add_error(None, f"{where}{problem.message}")


def day_field(label: Any, *, years: range, **more: Any) -> forms.DateField:
    """A field for one day of these years."""
    bounds = [MinValueValidator(date(years.start, 1, 1)), MaxValueValidator(date(years.stop - 1, 12, 31))]
    widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
    return forms.DateField(label=label, widget=widget, input_formats=["%Y-%m-%d"], validators=bounds, **more)


def midnight(day: date) -> datetime:
    """The start of a day in UTC."""
    return datetime.combine(day, time(), tzinfo=UTC)


MOST_OPTIONS: Final = 50
"""A field with more choices is a search field."""
MOST_SUGGESTIONS: Final = 20
LONGEST_SEARCH: Final = 200
SUGGEST: Final = "suggest"


@dataclass(frozen=True, slots=True)
class Offer:
    """Rows that a field may name, and the text that names one of them. No two rows of a field share it."""

    rows: QuerySet[Any]
    label: Combinable | str = "name"

    def labelled(self, **lookup: str) -> QuerySet[Any]:
        """Rows with their label as `offered_as`, in its order. lookup: of the label, such as `__icontains`."""
        rows: QuerySet[Any] = self.rows.annotate(offered_as=Cast(self.label, CharField()))
        return rows.filter(**{f"offered_as{name}": text for name, text in lookup.items()}).order_by("offered_as")


class SearchInput(forms.TextInput):
    """A text field with suggestions, which the page's own address serves while it is typed in."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """The field and its list, which is empty until the field has the focus."""
        suggested = f"{(attrs or {}).get('id', name)}-suggestions"
        own = {**(attrs or {}), "hx-get": f"?{SUGGEST}={name}", "hx-target": f"#{suggested}", "list": suggested}
        return format_html('{}<datalist id="{}"></datalist>', super().render(name, value, own, renderer), suggested)


class SearchField(forms.ChoiceField):
    """One of few rows by a select box, one of many by a search field. Its value is the row's label either way."""

    HTMX: Final = {
        "hx-trigger": "focus once, input changed delay:150ms",
        "hx-swap": "innerHTML",
        "hx-sync": "this:replace",
        "hx-push-url": "false",
    }
    PLAIN: Final = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
    NOT_FOUND: Final = _("“%(value)s” not found. Choose one of the suggestions.")
    offers: Sequence[Offer] = ()
    words: Sequence[str] = ()

    def offer(self, *offers: Offer, words: Sequence[str] = (), empty: Any = None, size: str = "") -> None:
        """Offer these rows, after `words`, which stand for themselves.

        empty: what no choice means, None where there must be one. size: `sm` for small fields.
        """
        self.offers, self.words = offers, words
        labels = self.matching("", MOST_OPTIONS + 1)
        if len(labels) <= MOST_OPTIONS:
            self.choices = [*([] if empty is None else [("", empty)]), *((label, label) for label in labels)]
        else:
            placeholder = {} if empty is None else {"placeholder": str(empty)}
            self.widget = SearchInput({**self.widget.attrs, **self.PLAIN, **self.HTMX, **placeholder})
            self.widget.is_required = self.required
            self.error_messages["invalid_choice"] = self.NOT_FOUND
        kind = "form-control" if self.searches else "form-select"
        self.widget.attrs["class"] = f"{kind} {kind}-{size}" if size else kind

    @property
    def searches(self) -> bool:
        """True where there are too many rows for a select box."""
        return isinstance(self.widget, SearchInput)

    def matching(self, text: str, most: int) -> list[str]:
        """The first so many labels that contain the text, offer by offer."""
        found = [word for word in self.words if text.lower() in word.lower()]
        for offer in self.offers:
            rows = offer.labelled(__icontains=text).values_list("offered_as", flat=True)
            found += rows[: max(most - len(found), 0)]
        return found

    def row_of(self, label: str) -> Any | None:
        """The row with this label; None where there is none, and for `words`."""
        return next(filter(None, (offer.labelled(__exact=label).first() for offer in self.offers)), None)

    def clean(self, value: Any) -> str:
        """The label, without the spaces around what was typed."""
        return str(super().clean(value.strip() if isinstance(value, str) else value))

    def valid_value(self, value: str) -> bool:
        """Whether a row or a word has this label."""
        if self.searches:
            return value in self.words or ("\x00" not in value and self.row_of(value) is not None)
        return super().valid_value(value)


def suggestions(request: HttpRequest, form: forms.Form) -> HttpResponse | None:
    """The options that a search field of the form asks for; None for any other request."""
    name = request.GET.get(SUGGEST, "") if request.method == "GET" else ""
    field = form.fields.get(name)
    if not isinstance(field, SearchField):
        return None
    text = search_text(request, form.add_prefix(name))
    labels = ((label,) for label in field.matching(text, MOST_SUGGESTIONS))
    return HttpResponse(format_html_join("", "<option>{}</option>", labels))


def search_text(request: HttpRequest, name: str = "q") -> str:
    """The text of a search field in the address, without NUL, which PostgreSQL refuses, and not longer than a field."""
    return request.GET.get(name, "").replace("\x00", "").strip()[:LONGEST_SEARCH]


def form_data(request: HttpRequest) -> QueryDict | None:
    """What a form was sent with; None when its page is opened."""
    return request.POST if request.method == "POST" else None


def _field_of(pointer: str) -> str:
    """`/preemptionPolicy` is the field `preemption_policy`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", pointer.lstrip("/")).lower()
