"""Pages of the signed-in user's own account: access keys, the second factor and single sign-on.

The secret of a key is shown once, in the response that created it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from allauth.mfa.adapter import get_adapter
from allauth.mfa.totp.internal.auth import generate_totp_secret
from allauth.mfa.utils import decrypt, encrypt
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kit.errors import NotFound, RungError
from portal.kit.pages.api_snippets import ApiRequest, action_snippet, form_snippets, portal_address
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.security.rate_limit import code_keys, count_try, keys_for, refund_try
from portal.kit.security.request_identity import actor_of
from portal.sso.provider import configured_provider
from tenants.access.forms import AccessKeyForm, PasswordForm, ProofForm, SetUpForm
from tenants.access.middleware import SECOND_FACTOR_KEY
from tenants.access.models import AccessKey, User
from tenants.access.selectors import access_for
from tenants.access.services import credentials, second_factor, subjects
from tenants.access.views import sign_in
from tenants.organisation.models import Department, Project

_SHELL: Final = """\
export RUNG_URL='{address}'
export RUNG_CLIENT_ID='{client_id}'
read -rs RUNG_CLIENT_SECRET && export RUNG_CLIENT_SECRET
"""
_RUNG: Final = """\
rung whoami  # this shell only; the next command stays signed in
printf %s "$RUNG_CLIENT_SECRET" |
  rung login "$RUNG_URL" --client-id "$RUNG_CLIENT_ID" --secret-stdin
"""
_CURL: Final = """\
TOKEN=$(printf '{"grantType": "client_credentials", "clientId": "%s", "clientSecret": "%s"}' \\
    "$RUNG_CLIENT_ID" "$RUNG_CLIENT_SECRET" |
  curl -fsS --data-binary @- "$RUNG_URL/api/v1/token" |
  sed 's/.*"accessToken": *"\\([^"]*\\)".*/\\1/')
printf 'Authorization: Bearer %s' "$TOKEN" |
  curl -fsS -H @- "$RUNG_URL/api/v1/org-unit/projects"
"""
_PYTHON: Final = """\
import os

from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.runai_client import RunaiClient

configuration = Configuration(
    client_id=os.environ["RUNG_CLIENT_ID"],
    client_secret=os.environ["RUNG_CLIENT_SECRET"],
    runai_base_url=os.environ["RUNG_URL"],
)
client = RunaiClient(ApiClient(configuration))
print(client.organizations.projects.get_projects().data)
"""


@dataclass(frozen=True, slots=True)
class KeyExample:
    """Lines to copy, under a short name."""

    name: str
    text: str


def key_examples(*, address: str, client_id: str) -> list[KeyExample]:
    """First the environment that the others expect: address, client id, and the secret, which is asked for."""
    shell = _SHELL.format(address=address, client_id=client_id)
    return [
        KeyExample("shell", shell),
        KeyExample("rung", _RUNG),
        KeyExample("curl", _CURL),
        KeyExample("Python", _PYTHON),
    ]


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    """Every key of mine, and a form for another one."""
    actor = actor_of(request)
    form = AccessKeyForm(form_data(request), access=access_for(actor))
    if shown := suggestions(request, form) or form_snippets(
        request, form, lambda: create_key_request(**form.requested)
    ):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            key, secret = credentials.create_access_key(actor=actor, **form.requested)
        except RungError as error:
            form.show(error, {"": "name"} if error.code == "taken" else {})
        else:
            return _show_secret(request, key, secret)
    context = {"form": form, "keys": credentials.keys_of(actor), "now": timezone.now()}
    return render(request, "tenants/access/access_keys.html", context, status=422 if form.errors else 200)


@login_required
@never_cache
@require_POST
def rotate(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Another secret; the old one ends at once."""
    key = _own_key(request, key_id)
    if copied := action_snippet(request, rotate_key_request(key)):
        return copied
    return _show_secret(request, key, credentials.rotate_access_key(key=key, actor=actor_of(request)))


@login_required
@require_POST
def revoke(request: HttpRequest, key_id: UUID) -> HttpResponse:
    key = _own_key(request, key_id)
    if copied := action_snippet(request, revoke_key_request(key)):
        return copied
    credentials.revoke_own_key(key=key, actor=actor_of(request))
    messages.success(request, _("Revoked %(name)s. It no longer works.") % {"name": key.name})
    return redirect("tenants:access-keys")


def _own_key(request: HttpRequest, key_id: UUID) -> AccessKey:
    key = credentials.keys_of(actor_of(request)).filter(pk=key_id).first()
    if key is None:
        raise NotFound
    return key


def _show_secret(request: HttpRequest, key: AccessKey, secret: str) -> HttpResponse:
    examples = key_examples(address=portal_address(request), client_id=key.client_id)
    context = {"key": key, "secret": secret, "examples": examples}
    return render(request, "tenants/access/access_key_secret.html", context)


ACCESS_KEYS: Final = "/api/v1/access-keys"


KEYS_OF_CLIENT: Final = "authentication_and_authorization.access_keys"


def rotate_key_request(key: AccessKey) -> ApiRequest:
    """Another secret for an access key; the answer holds it, once."""
    method = f"{KEYS_OF_CLIENT}.regenerate_access_key_secret"
    return ApiRequest("POST", f"{ACCESS_KEYS}/{key.pk}/secret", None, method, (str(key.pk),))


def revoke_key_request(key: AccessKey) -> ApiRequest:
    method = f"{KEYS_OF_CLIENT}.delete_access_key_by_id"
    return ApiRequest("DELETE", f"{ACCESS_KEYS}/{key.pk}", None, method, (str(key.pk),))


def create_key_request(
    *, name: str, expires_at: datetime | None, read_only: bool, project: Project | None, department: Department | None
) -> ApiRequest:
    """An access key; the answer holds its secret, once."""
    body: dict[str, Any] = {"name": name, "readOnly": read_only}
    if expires_at:
        body["expirationDate"] = f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"
    if project:
        body["projectId"] = str(project.pk)
    if department:
        body["departmentId"] = str(department.pk)
    return ApiRequest("POST", ACCESS_KEYS, body)


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
        "connected": subjects.is_linked(user),
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
    refund_try(keys)


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
    subjects.unlink_identity(user=user, actor=actor_of(request))
    messages.success(request, _("Disconnected. Sign in with your password from now on."))
    return redirect(HOME)


def _change_password(request: HttpRequest, user: User, form: ProofForm) -> HttpResponse:
    given = form.cleaned_data
    subjects.change_own_password(current=given["proof"], new=given["new_password"], actor=actor_of(request))
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
        gettext_lazy("Your other sessions end."),
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
    secret = decrypt(request.session.get(OFFERED, "")) or generate_totp_secret()
    request.session[OFFERED] = encrypt(secret)
    return str(secret)


def _picture(user: User, secret: str) -> SafeString:
    """The QR code as inline SVG. Nothing in it is anybody's text: modules of a grid."""
    adapter = get_adapter()
    svg = str(adapter.build_totp_svg(adapter.build_totp_url(user, secret)))
    return mark_safe(svg[svg.index("<svg") :])  # noqa: S308  # drawn here


def _grouped(texts: list[str]) -> list[str]:
    """In groups of four, for people who type."""
    return [" ".join(text[start : start + 4] for start in range(0, len(text), 4)) for text in texts]
