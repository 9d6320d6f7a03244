"""Forms of access keys, sign-in and account security."""

from datetime import datetime, timedelta
from typing import Any, Final, cast

from django import forms
from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import Concat
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from portal.kit.pages.forms import Offer, PageForm, SearchField
from tenants.access.models import ACCOUNT_NAME, User
from tenants.access.selectors import Access
from tenants.organisation.models import Department, Project

LIFETIMES: Final = (
    ("7", _("7 days")),
    ("30", _("30 days")),
    ("90", _("90 days")),
    ("365", _("a year")),
    ("", _("never")),
)


class AccessKeyForm(PageForm):
    """A name, an end, and how far it reaches; never further than its owner."""

    name = forms.CharField(
        max_length=63,
        validators=[ACCOUNT_NAME],
        label=_("Name"),
        help_text=_("Where you will use the key, such as nightly-training or laptop."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    lasts = forms.ChoiceField(choices=LIFETIMES, initial="90", required=False, label=_("Expires after"))
    reach = SearchField(required=False, label=_("Scope"))
    read_only = forms.BooleanField(
        required=False, label=_("Read-only"), help_text=_("The key can list and view, but not change anything.")
    )

    def __init__(self, *args: Any, access: Access, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        departments, projects = department_offer(access.departments()), project_offer(access.projects())
        self._reach.offer(departments, projects, empty=_("all your projects"))

    @property
    def _reach(self) -> SearchField:
        return cast("SearchField", self.fields["reach"])

    @property
    def requested(self) -> dict[str, Any]:
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
        return self._row if isinstance(self._row, Project) else None

    @property
    def department(self) -> Department | None:
        """The only department where it works, if there is one."""
        return self._row if isinstance(self._row, Department) else None

    @cached_property
    def _row(self) -> Project | Department | None:
        chosen = self.cleaned_data["reach"]
        return self._reach.row_of(chosen) if chosen else None


def project_offer(projects: QuerySet[Project]) -> Offer:
    """Projects for a field that offers other places too."""
    return Offer(projects, Concat(Value("project "), "name", output_field=CharField()))


def department_offer(departments: QuerySet[Department]) -> Offer:
    """The same of departments, whose names are unique on a cluster only."""
    return Offer(
        departments, Concat(Value("department "), "name", Value(" on "), "cluster__name", output_field=CharField())
    )


DIGITS: Final = {"autocomplete": "one-time-code", "inputmode": "numeric", "spellcheck": "false"}
LONGEST_PASSWORD: Final = 4096


class CodeForm(PageForm):
    """A code of the app, or a recovery code."""

    code = forms.CharField(
        label=_("Code"), max_length=40, widget=forms.TextInput({**DIGITS, "inputmode": "text", "autofocus": True})
    )


class ProofForm(PageForm):
    """That it is really the owner who asks: the password again, or for people without one a code."""

    proof = forms.CharField(max_length=LONGEST_PASSWORD, strip=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if user.has_usable_password():
            self._ask(_("Your password"), forms.PasswordInput({"autocomplete": "current-password"}))
        else:
            self._ask(_("Code from your authenticator app"), forms.TextInput(dict(DIGITS)))

    def _ask(self, label: Any, widget: forms.Widget) -> None:
        field = self.fields["proof"]
        field.label = label
        field.widget = widget
        field.widget.attrs |= {"class": "form-control", "maxlength": str(LONGEST_PASSWORD)}


class PasswordForm(ProofForm):
    """The current password and the next."""

    new_password = forms.CharField(
        label=_("New password"),
        max_length=LONGEST_PASSWORD,
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
    )


class SetUpForm(ProofForm):
    """The first code of a new app, and the password of who has one."""

    code = forms.CharField(label=_("Code from the app"), max_length=10, widget=forms.TextInput(dict(DIGITS)))
    field_order = ("code", "proof")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, user=user, **kwargs)
        if not user.has_usable_password():
            del self.fields["proof"]
