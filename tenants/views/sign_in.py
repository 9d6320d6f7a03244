"""Signing in: with a password, through the provider of the single sign-on, and with a second factor after either."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from portal.audit.models import Result
from portal.audit.services import record, record_refusal
from portal.core.errors import RungError, TooMany
from portal.core.http import actor_of, client_ip
from portal.core.pageforms import sent
from portal.core.sign_in import Counted, code_keys, count_try, give_back
from portal.core.sign_in import SignIn as PasswordSignIn
from portal.oidc.flow import finish
from portal.oidc.identity import Identity
from portal.oidc.provider import Provider, ProviderAway, Unbelieved, configured
from tenants.models import User
from tenants.permissions import has_platform_admin
from tenants.security_forms import CodeForm
from tenants.services import identities, second_factor
from tenants.views import attempts
from tenants.views.arriving import admit, onward_from, open_session, person, who_waits

LOGIN: Final = "login"


class SignIn(PasswordSignIn):
    """The page: name and password, and the button of the single sign-on where there is one."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Beside Django's: the provider, and whether the first admin is still to be made."""
        return super().get_context_data(provider=configured(), no_admin=not has_platform_admin(), **kwargs)

    def admit(self, form: AuthenticationForm) -> HttpResponse:
        """A right password is half of it for who has a second factor."""
        return admit(self.request, form.get_user(), onward=self.get_success_url(), shown="password")


@require_http_methods(["GET", "POST"])
def second_step(request: HttpRequest) -> HttpResponse:
    """Ask for the code, after a right password or a believed provider."""
    found = who_waits(request)
    if found is None:
        return redirect(LOGIN)
    waiting, user = found
    form, keys = CodeForm(sent(request)), code_keys(request, str(user.pk))
    if request.method != "POST" or not form.is_valid():
        return _code_page(request, form)
    try:
        count_try(keys)
    except TooMany as error:
        return _code_page(request, form, error)
    kind = second_factor.accept(user=user, code=form.cleaned_data["code"])
    if not kind:
        record(person(request, user), "session.start", user, result=Result.DENIED, detail={"code": "wrong_code"})
        form.add_error("code", _("This code is wrong, too old, or was used before."))
        return _code_page(request, form)
    give_back(keys)
    if kind == "recovery":
        _say_how_many_are_left(request, user)
    return open_session(request, user, onward=waiting.onward, shown=f"{waiting.shown}, {kind}", factor=kind)


@require_safe
def to_provider(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider. Nothing changes by it but this session."""
    provider = _provider()
    try:
        return redirect(attempts.start(request, provider, onward=onward_from(request)))
    except RungError as error:
        return _page(request, error)


@require_safe
def from_provider(request: HttpRequest) -> HttpResponse:
    """The browser is back, with an answer that is believed or not; either way it counts once."""
    provider, identity = _provider(), None
    address: Counted = ("address", client_ip(request) or "")
    try:
        count_try([address])
        attempt, kept = attempts.take(request)
        identity = finish(provider, attempt, _answer(request))
        if kept["joins"] is not None:
            response = _join(request, identity, kept["joins"])
        else:
            user = identities.arrive(identity=identity, actor=actor_of(request))
            factor = "provider" if identity.second_factor else ""
            response = admit(request, user, onward=kept["onward"], shown="single sign-on", factor=factor)
    except (TooMany, ProviderAway) as error:
        if isinstance(error, ProviderAway):
            give_back([address])
        return _page(request, error)
    except RungError as error:
        said = {"subject": identity.subject, "name": identity.username} if identity is not None else {}
        detail = {"issuer": provider.issuer, **said}
        record_refusal(actor_of(request), "session.start", error, entity_type="user", detail=detail)
        return _page(request, error)
    give_back([address])
    return response


def _join(request: HttpRequest, identity: Identity, user_id: int) -> HttpResponse:
    user = request.user
    if not isinstance(user, User) or user.pk != user_id:
        raise Unbelieved(_("You are not signed in as who wanted to connect."), code="wrong_state")
    identities.join(user=user, identity=identity, actor=actor_of(request))
    messages.success(request, _("Connected. From now on you can sign in that way, too."))
    return redirect("tenants:security")


def _provider() -> Provider:
    provider = configured()
    if provider is None:
        raise Http404
    return provider


def _answer(request: HttpRequest) -> dict[str, str]:
    """The parameters, each once: a doubled one is nobody's."""
    return {name: values[0] for name, values in request.GET.lists() if len(values) == 1 and isinstance(values[0], str)}


def _page(request: HttpRequest, error: RungError) -> HttpResponse:
    """The sign-in page, with why not."""
    view = SignIn()
    view.setup(request)
    return view.refuse(error)


def _code_page(request: HttpRequest, form: CodeForm, refused: TooMany | None = None) -> HttpResponse:
    status = 429 if refused else 200
    page = render(request, "registration/code.html", {"form": form, "refused": refused}, status=status)
    if refused:
        page["Retry-After"] = str(refused.retry_after)
    return page


def _say_how_many_are_left(request: HttpRequest, user: User) -> None:
    left = second_factor.codes_left(user)
    messages.warning(request, _("You have %(left)s recovery codes left.") % {"left": left})
