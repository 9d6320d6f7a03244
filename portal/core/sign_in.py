"""The sign-in page behind the exact limiter: a wrong guess costs a try, a right one gives it back."""

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from portal.core import limiter
from portal.core.errors import TooMany
from portal.core.http import client_ip


class SignIn(LoginView):
    """Django's sign-in view; the console signs in here too."""

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """Count the try before the password is looked at."""
        try:
            for scope, key in keys_of(request):
                tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
                limiter.hit(f"sign-in {scope}", key, limit=tries, per=seconds)
        except TooMany as error:
            return self.refuse(error)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """A right password does not count as a guess."""
        for scope, key in keys_of(self.request):
            limiter.give_back(f"sign-in {scope}", key)
        return super().form_valid(form)

    def refuse(self, error: TooMany) -> HttpResponse:
        """The page again, with when to come back."""
        form = self.get_form_class()(self.request)
        page: HttpResponseBase = self.render_to_response(self.get_context_data(form=form, refused=error), status=429)
        page["Retry-After"] = str(error.retry_after)
        return page  # type: ignore[return-value]  # render_to_response is typed as the base of all responses


def keys_of(request: HttpRequest) -> list[tuple[str, str]]:
    """What is counted: this name from this address, and this address."""
    address = client_ip(request) or ""
    return [("name", f"{address} {request.POST.get('username', '')[:254].casefold()}"), ("address", address)]
