"""Forms of the tenants' pages."""

from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.forms import TextInput

from portal.core.http import client_ip
from portal.core.limiter import give_back, hit

TRIES = 10
TRIES_FROM_ANYWHERE = 100
WINDOW = 300


class SignInForm(AuthenticationForm):
    """User name and password; guesses are counted per name and address, and per name over all addresses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"
        self.fields["username"].widget = TextInput(
            attrs={"class": "form-control", "autocomplete": "username", "autofocus": True, "autocapitalize": "none"}
        )

    def clean(self) -> dict[str, Any]:
        """Count the try before the password is looked at; a right one is taken back."""
        name = str(self.cleaned_data.get("username", "")).casefold()
        address = client_ip(self.request) if self.request else ""
        tries = (("sign-in", f"{name}\n{address}", TRIES), ("sign-in-name", name, TRIES_FROM_ANYWHERE))
        for scope, key, limit in tries:
            hit(scope, key, limit=limit, per=WINDOW)
        cleaned: dict[str, Any] = super().clean()
        for scope, key, _limit in tries:
            give_back(scope, key)
        return cleaned
