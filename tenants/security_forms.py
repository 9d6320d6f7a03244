"""Forms of signing in and of what protects an account."""

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from portal.core.pageforms import PageForm
from tenants.models import User

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
            self._ask(_("A code of your authenticator app"), forms.TextInput(dict(DIGITS)))

    def _ask(self, label: Any, widget: forms.Widget) -> None:
        field = self.fields["proof"]
        field.label = label
        field.widget = widget
        field.widget.attrs |= {"class": "form-control", "maxlength": str(LONGEST_PASSWORD)}


class SetUpForm(ProofForm):
    """The first code of a new app, and the password of who has one."""

    code = forms.CharField(label=_("Code that the app shows"), max_length=10, widget=forms.TextInput(dict(DIGITS)))
    field_order = ("code", "proof")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, user=user, **kwargs)
        if not user.has_usable_password():
            del self.fields["proof"]
