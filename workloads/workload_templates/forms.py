"""The form of a template: its name, where it holds, and what it says as YAML."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from uuid import UUID

import yaml
from django import forms
from django.utils.translation import gettext_lazy as _

from portal.kit.pages.forms import PageForm
from portal.kit.security.strict_json import DocumentInvalid, ParseLimits
from portal.kit.security.strict_yaml import documents_from_yaml
from workloads.policies.forms import ScopeField
from workloads.policies.models import Owner
from workloads.policies.selectors import ManageableScopes
from workloads.workload_templates.models import Asset, TemplateKind, WorkloadTemplate
from workloads.workload_templates.services import LONGEST_DESCRIPTION, LONGEST_NAME, TemplateDraft

ASSETS: Final = ("environment", "compute")
POINTERS: Final[Mapping[str, str]] = {
    "/meta/name": "name",
    "/meta/description": "description",
    **{f"/assets/{name}": name for name in ASSETS},
    **{f"/spec/nodePools/{index}": "text" for index in range(20)},
}
"""Where what the service refuses was typed; the rest is shown above the form with its pointer."""
Choices = Sequence[tuple[str, Any]]


class TemplateForm(PageForm):
    """Kind and place are chosen once. What it may say is the service's to judge."""

    kind = forms.ChoiceField(label=_("For"), choices=TemplateKind.choices)
    name = forms.CharField(
        label=_("Name"), max_length=LONGEST_NAME, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    description = forms.CharField(label=_("Description"), required=False, max_length=LONGEST_DESCRIPTION)
    place = ScopeField(label=_("Where"), help_text=_("Available in this scope and everything below it."))
    environment = forms.ChoiceField(label=_("Environment"), required=False)
    compute = forms.ChoiceField(label=_("Compute resource"), required=False)
    text = forms.CharField(
        label=_("Preset values (YAML or JSON)"),
        help_text=_(
            "Fields of a native submission's spec, all optional. The environment, the compute resource or the "
            "user fills in omitted fields. Everyone who can see the template can read it: do not include "
            "passwords."
        ),
        required=False,
        strip=False,
        widget=forms.Textarea(
            attrs={"class": "mono", "rows": 16, "spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
        ),
    )

    def __init__(
        self,
        *args: Any,
        assets: Sequence[Asset],
        scopes: ManageableScopes | None = None,
        old: WorkloadTemplate | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("initial", self.of(old) if old else {})
        super().__init__(*args, **kwargs)
        self._old = old
        if scopes is not None:
            self._place.offer_scopes(scopes)
        for name in ASSETS:
            known = (each for each in assets if each.kind == name)
            offered = [(str(each.pk), f"{each.name} ({each.place.words})") for each in known]
            self._choices(name, [("", _("none")), *offered])
            if not offered:
                del self.fields[name]
        if old is not None:
            del self.fields["kind"], self.fields["place"]

    def _choices(self, name: str, choices: Choices) -> None:
        cast("forms.ChoiceField", self.fields[name]).choices = choices

    @property
    def _place(self) -> ScopeField:
        return cast("ScopeField", self.fields["place"])

    @property
    def owner(self) -> Owner:
        """Whose template it is to be; None: the installation's."""
        return self._place.owner_of(self.cleaned_data["place"])

    @classmethod
    def of(cls, row: WorkloadTemplate) -> dict[str, Any]:
        """What the fields hold for a template that is there."""
        chosen = {name: str(getattr(row, f"{name}_id") or "") for name in ASSETS}
        return {"name": row.name, "description": row.description, "text": yaml_of(row.spec), **chosen}

    def clean_text(self) -> dict[str, Any]:
        """The one object that is written there."""
        data = self.cleaned_data["text"].replace("\r\n", "\n").encode()
        try:
            found = [each.value for each in documents_from_yaml(data, ParseLimits())]
            json.dumps(found, allow_nan=False)
        except DocumentInvalid as refusal:
            first = refusal.problems[0]
            line = _("Line %(line)s: ") % {"line": first.line} if first.line else ""
            raise forms.ValidationError(f"{line}{first.message}") from None
        except (TypeError, ValueError):
            raise forms.ValidationError(_("Not a valid number.")) from None
        if len(found) > 1 or not all(isinstance(each, dict) for each in found):
            raise forms.ValidationError(_("Enter one object: lines of name, colon and value."))
        return cast("dict[str, Any]", found[0]) if found else {}

    @property
    def draft(self) -> TemplateDraft:
        """As the service takes it; what the form has no fields for stays as it was."""
        given, old = self.cleaned_data, self._old
        return TemplateDraft(
            name=given["name"],
            description=given["description"],
            spec=given["text"],
            environment=_key(given.get("environment")),
            compute=_key(given.get("compute")),
            master=old.master if old else None,
            master_same=old.master_same if old else None,
            master_environment=old.master_environment_id if old else None,
            master_compute=old.master_compute_id if old else None,
        )


def yaml_of(spec: Mapping[str, Any]) -> str:
    """Plain YAML in the order of writing; nothing for nothing."""
    return str(yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True)) if spec else ""


def _key(text: str | None) -> UUID | None:
    return UUID(text) if text else None
