"""Pages of the signed-in user's access keys. A secret is shown once, in the response that created it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.kit.errors import NotFound, RungError
from portal.kit.pages.api_snippets import ApiRequest, action_snippet, form_snippets, portal_address
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.security.request_identity import actor_of
from tenants.access.forms import AccessKeyForm
from tenants.access.models import AccessKey
from tenants.access.selectors import access_for
from tenants.access.services import access_keys
from tenants.organisation.models import Department, Project

_SHELL: Final = """\
export RUNG_URL='{address}'
export RUNG_CLIENT_ID='{client_id}'
read -rs RUNG_CLIENT_SECRET && export RUNG_CLIENT_SECRET
"""
_RUNG: Final = """\
rung whoami  # at once; the next line signs in for good
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
    form = AccessKeyForm(form_data(request), standing=access_for(actor))
    if shown := suggestions(request, form) or form_snippets(request, form, lambda: create_key_request(**form.asked)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            key, secret = access_keys.create(actor=actor, **form.asked)
        except RungError as error:
            form.show(error, {"": "name"} if error.code == "taken" else {})
        else:
            return _show_secret(request, key, secret)
    context = {"form": form, "keys": access_keys.keys_of(actor), "now": timezone.now()}
    return render(request, "tenants/access/access_keys.html", context, status=422 if form.errors else 200)


@login_required
@never_cache
@require_POST
def rotate(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Another secret; the old one ends at once."""
    key = _own_key(request, key_id)
    if copied := action_snippet(request, rotate_key_request(key)):
        return copied
    return _show_secret(request, key, access_keys.rotate(key=key, actor=actor_of(request)))


@login_required
@require_POST
def revoke(request: HttpRequest, key_id: UUID) -> HttpResponse:
    key = _own_key(request, key_id)
    if copied := action_snippet(request, revoke_key_request(key)):
        return copied
    access_keys.revoke(key=key, actor=actor_of(request))
    messages.success(request, _("Revoked %(name)s. It no longer works.") % {"name": key.name})
    return redirect("tenants:access-keys")


def _own_key(request: HttpRequest, key_id: UUID) -> AccessKey:
    key = access_keys.keys_of(actor_of(request)).filter(pk=key_id).first()
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
