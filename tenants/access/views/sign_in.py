"""Sign in with a password or through the identity provider, then with a second factor if there is one."""

import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.forms import AuthenticationForm
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from portal.audit.models import Result
from portal.audit.services import record, record_refusal
from portal.kit.errors import RungError, TooManyRequests
from portal.kit.pages.forms import form_data
from portal.kit.security.actors import Actor, ActorKind
from portal.kit.security.rate_limit import Counted, code_keys, count_try, refund_try
from portal.kit.security.rate_limit import ThrottledLoginView as PasswordSignIn
from portal.kit.security.request_identity import actor_of, client_ip, request_origin
from portal.sso.flow import LoginAttempt, begin_login, finish_login
from portal.sso.provider import Identity, Provider, ProviderUnavailable, UntrustedResponse, configured_provider
from tenants.access.forms import CodeForm
from tenants.access.middleware import SECOND_FACTOR_KEY
from tenants.access.models import User
from tenants.access.selectors import has_platform_admin
from tenants.access.services import second_factor, subjects

BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
PENDING_LOGIN_KEY: Final = "signing_in"
PENDING_LOGIN_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A user whose first factor was right. `digest` changes with their password."""

    user_id: int
    digest: str
    onward: str
    shown: str
    at: float


def complete_first_factor(
    request: HttpRequest, user: User, *, onward: str, shown: str, factor: str = ""
) -> HttpResponse:
    """Open the session, or ask for the second factor first. `factor` names one that the provider has seen."""
    if not second_factor.is_enabled(user):
        return open_session(request, user, onward=onward, shown=shown, factor=factor)
    waiting = PendingLogin(user.pk, user.get_session_auth_hash(), onward, shown, time.time())
    request.session[PENDING_LOGIN_KEY] = asdict(waiting)
    return redirect(reverse("login-code"))


def open_session(request: HttpRequest, user: User, *, onward: str, shown: str, factor: str) -> HttpResponse:
    """Under a new key; what waited is forgotten."""
    request.session.pop(PENDING_LOGIN_KEY, None)
    vars(request)["signed_in_with"] = shown
    login(request, user, backend=BACKEND)
    request.session[SECOND_FACTOR_KEY] = factor
    return redirect(onward)


def pending_user(request: HttpRequest) -> tuple[PendingLogin, User] | None:
    """Who is to show a second factor; None after a while, or once they were disabled or changed their password."""
    stored: Any = request.session.get(PENDING_LOGIN_KEY)
    if stored is None:
        return None
    waiting = PendingLogin(**stored)
    user = User.objects.filter(pk=waiting.user_id, is_active=True).first()
    fresh = 0 <= time.time() - waiting.at <= PENDING_LOGIN_SECONDS
    if user is None or not fresh or not constant_time_compare(waiting.digest, user.get_session_auth_hash()):
        del request.session[PENDING_LOGIN_KEY]
        return None
    return waiting, user


def redirect_target(request: HttpRequest) -> str:
    """The page that was requested, if it is on this site; else home."""
    wanted = request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if is_ours else reverse("home")


def pending_actor(request: HttpRequest, user: User) -> Actor:
    """A user who is not signed in yet, as an actor."""
    return Actor(
        kind=ActorKind.USER,
        id=str(user.pk),
        name=user.get_username(),
        **request_origin(request),
    )


SESSION_KEY: Final = "single_sign_on"
MOST: Final = 5
"""Tabs of one browser that may be on their way at once."""


def start_attempt(request: HttpRequest, provider: Provider, *, onward: str, joins: int | None = None) -> str:
    """The provider's address for a new attempt. `joins` is the user who wants to connect their account."""
    address = request.build_absolute_uri(reverse("single-sign-on-return"))
    url, attempt = begin_login(provider, redirect_uri=address)
    others: dict[str, Any] = request.session.get(SESSION_KEY, {})
    newest = dict(list(others.items())[-(MOST - 1) :])
    request.session[SESSION_KEY] = {
        **newest,
        attempt.state: {"attempt": attempt.as_json(), "onward": onward, "joins": joins},
    }
    return url


def take_attempt(request: HttpRequest) -> tuple[LoginAttempt, dict[str, Any]]:
    """The attempt that an answer belongs to, taken out for good, before anything is believed."""
    pending: dict[str, Any] = request.session.get(SESSION_KEY, {})
    stored = pending.pop(request.GET.get("state", ""), None)
    if stored is None:
        raise UntrustedResponse(_("This sign-in was not started in this browser. Start again."), code="wrong_state")
    request.session[SESSION_KEY] = pending
    request.session.save()
    return LoginAttempt(**stored["attempt"]), stored


LOGIN: Final = "login"


class SignInView(PasswordSignIn):
    """The page: name and password, and the button of the single sign-on where there is one."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Beside Django's: the provider, and whether the first admin is still to be made."""
        return super().get_context_data(provider=configured_provider(), no_admin=not has_platform_admin(), **kwargs)

    def admit(self, form: AuthenticationForm) -> HttpResponse:
        """A right password is half of it for who has a second factor."""
        return complete_first_factor(self.request, form.get_user(), onward=self.get_success_url(), shown="password")


@require_http_methods(["GET", "POST"])
def second_factor_step(request: HttpRequest) -> HttpResponse:
    """Ask for the code, after a right password or a believed provider."""
    found = pending_user(request)
    if found is None:
        return redirect(LOGIN)
    waiting, user = found
    form, keys = CodeForm(form_data(request)), code_keys(request, str(user.pk))
    if request.method != "POST" or not form.is_valid():
        return _code_page(request, form)
    try:
        count_try(keys)
    except TooManyRequests as error:
        return _code_page(request, form, error)
    kind = second_factor.accept_code(user=user, code=form.cleaned_data["code"])
    if not kind:
        record(pending_actor(request, user), "session.start", user, result=Result.DENIED, detail={"code": "wrong_code"})
        form.add_error("code", _("This code is wrong, expired or already used."))
        return _code_page(request, form)
    refund_try(keys)
    if kind == "recovery":
        _show_remaining_codes(request, user)
    return open_session(request, user, onward=waiting.onward, shown=f"{waiting.shown}, {kind}", factor=kind)


@require_safe
def to_provider(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider. Nothing changes by it but this session."""
    provider = _provider()
    try:
        return redirect(start_attempt(request, provider, onward=redirect_target(request)))
    except RungError as error:
        return _page(request, error)


@require_safe
def from_provider(request: HttpRequest) -> HttpResponse:
    """The browser is back, with an answer that is believed or not; either way it counts once."""
    provider, identity = _provider(), None
    address: Counted = ("address", client_ip(request) or "")
    try:
        count_try([address])
        attempt, stored = take_attempt(request)
        identity = finish_login(provider, attempt, _answer(request))
        if stored["joins"] is not None:
            response = _link(request, identity, stored["joins"])
        else:
            user = subjects.account_for(identity=identity, actor=actor_of(request))
            factor = "provider" if identity.second_factor else ""
            response = complete_first_factor(
                request, user, onward=stored["onward"], shown="single sign-on", factor=factor
            )
    except (TooManyRequests, ProviderUnavailable) as error:
        if isinstance(error, ProviderUnavailable):
            refund_try([address])
        return _page(request, error)
    except RungError as error:
        subject = {"subject": identity.subject, "name": identity.username} if identity is not None else {}
        detail = {"issuer": provider.issuer, **subject}
        record_refusal(actor_of(request), "session.start", error, entity_type="user", detail=detail)
        return _page(request, error)
    refund_try([address])
    return response


def _link(request: HttpRequest, identity: Identity, user_id: int) -> HttpResponse:
    user = request.user
    if not isinstance(user, User) or user.pk != user_id:
        raise UntrustedResponse(
            _("You signed in as a different user than the one who started connecting."), code="wrong_state"
        )
    subjects.link_identity(user=user, identity=identity, actor=actor_of(request))
    messages.success(request, _("Connected. You can now sign in with single sign-on."))
    return redirect("tenants:security")


def _provider() -> Provider:
    provider = configured_provider()
    if provider is None:
        raise Http404
    return provider


def _answer(request: HttpRequest) -> dict[str, str]:
    """The parameters, each once: repeated ones are dropped."""
    return {name: values[0] for name, values in request.GET.lists() if len(values) == 1 and isinstance(values[0], str)}


def _page(request: HttpRequest, error: RungError) -> HttpResponse:
    """The sign-in page, with why not."""
    view = SignInView()
    view.setup(request)
    return view.refuse(error)


def _code_page(request: HttpRequest, form: CodeForm, refused: TooManyRequests | None = None) -> HttpResponse:
    status = 429 if refused else 200
    page = render(request, "registration/code.html", {"form": form, "refused": refused}, status=status)
    if refused:
        page["Retry-After"] = str(refused.retry_after)
    return page


def _show_remaining_codes(request: HttpRequest, user: User) -> None:
    left = second_factor.remaining_codes(user)
    messages.warning(request, _("You have %(left)s recovery codes left.") % {"left": left})
