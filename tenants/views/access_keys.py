"""One's own access keys. A secret is on screen once, in the answer to what made it."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.core.copying import address_of, copies_of, copies_of_act
from portal.core.errors import Absent, RungError
from portal.core.http import actor_of
from portal.core.pageforms import sent
from tenants.access_key_forms import AccessKeyForm
from tenants.key_examples import examples_of
from tenants.models import AccessKey
from tenants.permissions import standing_of
from tenants.services import access_keys
from tenants.twins import key_revoked, key_rotated, new_key


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    """Every key of mine, and a form for another one."""
    actor = actor_of(request)
    form = AccessKeyForm(sent(request), standing=standing_of(actor))
    if shown := copies_of(request, form, lambda: new_key(**form.asked)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            key, secret = access_keys.create(actor=actor, **form.asked)
        except RungError as error:
            form.show(error, {"": "name"} if error.code == "taken" else {})
        else:
            return _show_secret(request, key, secret)
    context = {"form": form, "keys": access_keys.keys_of(actor), "now": timezone.now()}
    return render(request, "tenants/access_keys.html", context, status=422 if form.errors else 200)


@login_required
@never_cache
@require_POST
def rotate(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Another secret; the old one ends at once."""
    key = _mine(request, key_id)
    if copied := copies_of_act(request, key_rotated(key)):
        return copied
    return _show_secret(request, key, access_keys.rotate(key=key, actor=actor_of(request)))


@login_required
@require_POST
def revoke(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Gone, with every token."""
    key = _mine(request, key_id)
    if copied := copies_of_act(request, key_revoked(key)):
        return copied
    access_keys.revoke(key=key, actor=actor_of(request))
    messages.success(request, _("%(name)s is revoked: what used it is refused from now on.") % {"name": key.name})
    return redirect("tenants:access-keys")


def _mine(request: HttpRequest, key_id: UUID) -> AccessKey:
    key = access_keys.keys_of(actor_of(request)).filter(pk=key_id).first()
    if key is None:
        raise Absent
    return key


def _show_secret(request: HttpRequest, key: AccessKey, secret: str) -> HttpResponse:
    examples = examples_of(address=address_of(request), client_id=key.client_id)
    context = {"key": key, "secret": secret, "examples": examples}
    return render(request, "tenants/access_key_secret.html", context)
