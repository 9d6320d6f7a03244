"""Forms of the pages: Tabler's classes on every widget, and refusals of services shown at their fields."""

import re
from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest, QueryDict
from django.template import loader

from portal.kit.errors import RungError

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
        return super().get_template(template_name)


class PageForm(forms.Form):
    """A form as the pages draw it."""

    default_renderer = PageRenderer

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

    def _field_errors(self) -> list[tuple[str, forms.ValidationError]]:
        found = self.errors.as_data()
        return [(name, error) for name in self.fields for error in found.get(name, [])]

    def show(self, error: RungError, fields: Mapping[str, str] = NOTHING) -> None:
        """Put each problem at its field; `fields` maps pointers to field names, the rest stands above the form."""
        if not error.problems:
            self.add_error(None, error.message)
        for problem in error.problems:
            name = fields.get(problem.pointer) or _field_of(problem.pointer)
            if name in self.fields:
                self.add_error(name, problem.message)
            else:
                where = f"{problem.pointer}: " if problem.pointer else ""
                self.add_error(None, f"{where}{problem.message}")


def form_data(request: HttpRequest) -> QueryDict | None:
    """What a form was sent with; None when its page is opened."""
    return request.POST if request.method == "POST" else None


def _field_of(pointer: str) -> str:
    """`/preemptionPolicy` is the field `preemption_policy`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", pointer.lstrip("/")).lower()
