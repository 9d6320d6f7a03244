"""The form of a new access key."""

from datetime import datetime, timedelta
from typing import Any, Final, cast

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from portal.core.pageforms import PageForm
from tenants.models import Department, Project
from tenants.models.access import ACCOUNT_NAME
from tenants.permissions import Standing

LASTS: Final = (
    ("7", _("7 days")),
    ("30", _("30 days")),
    ("90", _("90 days")),
    ("365", _("a year")),
    ("", _("until it is revoked")),
)


class AccessKeyForm(PageForm):
    """A name, an end, and how far it reaches; never further than its owner."""

    name = forms.CharField(
        max_length=63,
        validators=[ACCOUNT_NAME],
        label=_("Name"),
        help_text=_("What will use it, such as nightly-training or laptop."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    lasts = forms.ChoiceField(choices=LASTS, initial="90", required=False, label=_("It works for"))
    reach = forms.ChoiceField(required=False, label=_("It works in"))
    read_only = forms.BooleanField(
        required=False, label=_("It only reads"), help_text=_("It can list and look, and change nothing.")
    )

    def __init__(self, *args: Any, standing: Standing, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._projects = {f"project {each.pk}": each for each in standing.projects().order_by("name")}
        self._departments = {f"department {each.pk}": each for each in standing.departments().order_by("name")}
        reach = cast("forms.ChoiceField", self.fields["reach"])
        reach.choices = [
            ("", _("everything that you reach")),
            (_("One department only"), [(key, each.name) for key, each in self._departments.items()]),
            (_("One project only"), [(key, each.name) for key, each in self._projects.items()]),
        ]

    @property
    def asked(self) -> dict[str, Any]:
        """Arguments of the service."""
        given = self.cleaned_data
        named = {"name": given["name"], "read_only": given["read_only"], "expires_at": self.expires_at}
        return {**named, "project": self.project, "department": self.department}

    @property
    def expires_at(self) -> datetime | None:
        """When it ends; None for never."""
        days = self.cleaned_data["lasts"]
        return timezone.now() + timedelta(days=int(days)) if days else None

    @property
    def project(self) -> Project | None:
        """The only project where it works, if there is one."""
        return self._projects.get(self.cleaned_data["reach"])

    @property
    def department(self) -> Department | None:
        """The only department where it works, if there is one."""
        return self._departments.get(self.cleaned_data["reach"])
