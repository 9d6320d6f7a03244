"""The sign-in page behind the exact limiter: a wrong guess costs a try, a right one gives it back."""

from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from portal.core import limiter
from portal.core.errors import RungError, TooMany
from portal.core.http import client_ip

Counted = tuple[str, str]


class SignIn(LoginView):
    """Django's sign-in view; the console signs in here too."""

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """Count the try before the password is looked at."""
        try:
            count_try(keys_of(request))
        except TooMany as error:
            return self.refuse(error)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """A right password does not count as a guess."""
        give_back(keys_of(self.request))
        return self.admit(form)

    def admit(self, form: AuthenticationForm) -> HttpResponse:
        """Open a session, under a new key, and go where one wanted to go."""
        return super().form_valid(form)

    def refuse(self, error: RungError) -> HttpResponse:
        """The page again, with why not, and when to come back."""
        context = self.get_context_data(form=self.get_form_class()(self.request), refused=error)
        page: HttpResponseBase = self.render_to_response(context, status=error.status)
        if error.retry_after is not None:
            page["Retry-After"] = str(error.retry_after)
        return page  # type: ignore[return-value]  # render_to_response is typed as the base of all responses


def keys_of(request: HttpRequest) -> list[Counted]:
    """What is counted: this name from this address, and this address."""
    return keys_for(request, request.POST.get("username", ""))


def keys_for(request: HttpRequest, name: str) -> list[Counted]:
    """The same for a name that is known already."""
    address = client_ip(request) or ""
    return [("name", f"{address} {name[:254].casefold()}"), ("address", address)]


def code_keys(request: HttpRequest, user_id: str) -> list[Counted]:
    """For codes: by person, wherever the guesses come from, since a million codes are few. And by address."""
    return [("code", user_id), ("code day", user_id), ("address", client_ip(request) or "")]


def count_try(keys: Iterable[Counted]) -> None:
    """Count one guess under every key; TooMany where that is one too many."""
    for scope, key in keys:
        tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
        limiter.hit(f"sign-in {scope}", key, limit=tries, per=seconds)


def give_back(keys: Iterable[Counted]) -> None:
    """It was none: it was right."""
    for scope, key in keys:
        limiter.give_back(f"sign-in {scope}", key)
