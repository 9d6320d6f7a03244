"""What protects one's own account: the second factor with its recovery codes, and the single sign-on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from allauth.mfa.adapter import get_adapter
from allauth.mfa.totp.internal.auth import generate_totp_secret
from allauth.mfa.utils import decrypt, encrypt
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from portal.kit.errors import NotFound, RungError
from portal.kit.pages.forms import form_data
from portal.kit.security.rate_limit import code_keys, count_try, give_back, keys_for
from portal.kit.security.request_identity import actor_of
from portal.sso.provider import configured_provider
from tenants.access.forms import PasswordForm, ProofForm, SetUpForm
from tenants.access.middleware import SECOND_FACTOR_KEY
from tenants.access.models import User
from tenants.access.services import second_factor, sso_accounts, users
from tenants.access.views import sign_in

OFFERED: Final = "new_second_factor"
HOME: Final = "tenants:security"


@login_required
@require_safe
def security(request: HttpRequest) -> HttpResponse:
    """What there is, and what can be done about it."""
    user = _me(request)
    context = {
        "has_app": second_factor.is_enabled(user),
        "codes_left": second_factor.remaining_codes(user),
        "required": second_factor.is_required(user),
        "provider": configured_provider(),
        "connected": sso_accounts.is_linked(user),
    }
    return render(request, "tenants/access/security.html", context)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def set_up(request: HttpRequest) -> HttpResponse:
    """Show a new secret to an app, and turn the second factor on once the app has shown a code for it."""
    user = _me(request)
    if second_factor.is_enabled(user):
        return redirect(HOME)
    secret, form = _new_secret(request), SetUpForm(form_data(request), user=user)
    if request.method == "POST" and form.is_valid():
        try:
            _reauthenticate(request, user, form)
            code = form.cleaned_data["code"]
            codes = second_factor.enable(user=user, secret=secret, code=code, actor=actor_of(request))
        except RungError as error:
            form.show(error)
        else:
            del request.session[OFFERED]
            update_session_auth_hash(request, user)  # this session goes on, under a new key
            request.session[SECOND_FACTOR_KEY] = "app"
            return render(request, "tenants/access/recovery_codes.html", {"codes": _grouped(codes)})
    context = {"form": form, "picture": _picture(user, secret), "secret": _grouped([secret])[0]}
    return render(request, "tenants/access/second_factor.html", context, status=422 if form.errors else 200)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def perform_action(request: HttpRequest, name: str) -> HttpResponse:
    """Something that only the owner may do, after they have shown again who they are."""
    todo, user = SECURITY_ACTIONS.get(name), _me(request)
    if todo is None or (todo.needs_provider and configured_provider() is None):
        raise NotFound
    form = todo.form(form_data(request), user=user)
    if request.method == "POST" and form.is_valid():
        try:
            _reauthenticate(request, user, form)
            return todo.run(request, user, form)
        except RungError as error:
            form.show(error)
    return render(
        request, "tenants/access/reauthenticate.html", {"form": form, "todo": todo}, status=422 if form.errors else 200
    )


def _reauthenticate(request: HttpRequest, user: User, form: ProofForm) -> None:
    """Guesses count here as they do at the sign-in."""
    if "proof" not in form.fields:
        return
    known_by_password = user.has_usable_password()
    keys = keys_for(request, user.get_username()) if known_by_password else code_keys(request, str(user.pk))
    count_try(keys)
    second_factor.reauthenticate(user=user, proof=form.cleaned_data["proof"], actor=actor_of(request))
    give_back(keys)


def _remove(request: HttpRequest, user: User, _form: ProofForm) -> HttpResponse:
    second_factor.remove(user=user, actor=actor_of(request))
    request.session.pop(SECOND_FACTOR_KEY, None)
    messages.success(request, _("Second factor disabled."))
    return redirect(HOME)


def _renew(request: HttpRequest, user: User, _form: ProofForm) -> HttpResponse:
    codes = second_factor.renew_codes(user=user, actor=actor_of(request))
    return render(request, "tenants/access/recovery_codes.html", {"codes": _grouped(codes)})


def _connect(request: HttpRequest, user: User, _form: ProofForm) -> HttpResponse:
    """A link and no redirect: a form of ours leads to this site only."""
    provider = configured_provider()
    if provider is None:
        raise NotFound
    url = sign_in.start_attempt(request, provider, onward="", joins=user.pk)
    return render(request, "tenants/access/link_account.html", {"url": url, "provider": provider})


def _disconnect(request: HttpRequest, user: User, _form: ProofForm) -> HttpResponse:
    sso_accounts.unlink_identity(user=user, actor=actor_of(request))
    messages.success(request, _("Disconnected. Sign in with your password from now on."))
    return redirect(HOME)


def _change_password(request: HttpRequest, user: User, form: ProofForm) -> HttpResponse:
    given = form.cleaned_data
    users.change_own_password(current=given["proof"], new=given["new_password"], actor=actor_of(request))
    update_session_auth_hash(request, _me(request))  # this session goes on, under a new key
    messages.success(request, _("Password changed. Your other sessions have ended."))
    return redirect(HOME)


@dataclass(frozen=True, slots=True)
class SecurityAction:
    """What an owner may do, and how its page asks for it."""

    title: Any
    says: Any
    button: Any
    run: Callable[[HttpRequest, User, ProofForm], HttpResponse]
    css: str = "btn-primary"
    needs_provider: bool = False
    form: type[ProofForm] = ProofForm


SECURITY_ACTIONS: Final[Mapping[str, SecurityAction]] = {
    "change-password": SecurityAction(
        gettext_lazy("Change your password"),
        gettext_lazy("Every other session of yours ends."),
        gettext_lazy("Change password"),
        _change_password,
        form=PasswordForm,
    ),
    "remove-app": SecurityAction(
        gettext_lazy("Disable second factor"),
        gettext_lazy("The app and the recovery codes stop working. Sign-in then needs only the first factor."),
        gettext_lazy("Turn it off"),
        _remove,
        css="btn-risky",
    ),
    "recovery-codes": SecurityAction(
        gettext_lazy("New recovery codes"),
        gettext_lazy("The old codes stop working immediately. The new codes are shown once."),
        gettext_lazy("Create new codes"),
        _renew,
    ),
    "connect": SecurityAction(
        gettext_lazy("Connect single sign-on"),
        gettext_lazy("You can then sign in either way. Your groups come from the provider."),
        gettext_lazy("Go on"),
        _connect,
        needs_provider=True,
    ),
    "disconnect": SecurityAction(
        gettext_lazy("Disconnect single sign-on"),
        gettext_lazy("You then sign in with your password and lose the groups from the provider."),
        gettext_lazy("Disconnect"),
        _disconnect,
        css="btn-risky",
        needs_provider=True,
    ),
}


def _me(request: HttpRequest) -> User:
    return User.objects.get(pk=str(request.user.pk))


def _new_secret(request: HttpRequest) -> str:
    """The secret on offer, the same until it is confirmed or the session ends."""
    kept = decrypt(request.session.get(OFFERED, "")) or generate_totp_secret()
    request.session[OFFERED] = encrypt(kept)
    return str(kept)


def _picture(user: User, secret: str) -> SafeString:
    """The QR code as inline SVG. Nothing in it is anybody's text: modules of a grid."""
    adapter = get_adapter()
    svg = str(adapter.build_totp_svg(adapter.build_totp_url(user, secret)))
    return mark_safe(svg[svg.index("<svg") :])  # noqa: S308  # drawn here


def _grouped(texts: list[str]) -> list[str]:
    """In groups of four, for people who type."""
    return [" ".join(text[start : start + 4] for start in range(0, len(text), 4)) for text in texts]
