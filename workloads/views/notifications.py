"""Notifications: what I am told about by mail and what became of it; the channels, for platform admins."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from portal.core.actors import Actor
from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import Absent, Conflict, Refused
from portal.core.http import actor_of
from portal.core.keyset import page_of
from portal.core.pageforms import sent
from tenants.permissions import Verb, can
from workloads import twins
from workloads.models import Subscription
from workloads.notification_forms import WishForm
from workloads.selectors.notifications import channel_uses, deliveries_of, own_address, told
from workloads.services import notifications

PAGE: Final = "workloads:notifications"
PAGE_SIZE: Final = 25
NEW: Final = "new"


@login_required
@require_http_methods(["GET", "POST"])
def mine(request: HttpRequest) -> HttpResponse:
    """What I am told about, one subscription at a time, and my newest messages."""
    actor = actor_of(request)
    wishes = list(notifications.subscriptions_of(actor))
    wish = _chosen(wishes, request.GET.get("subscription", ""))
    names = [each.name for each in notifications.channels(actor)]
    form = WishForm(sent(request), channels=names, old=wish)
    if shown := copies_of(request, form, lambda: twins.wish(wish, form.events, form.cleaned_data["channels"])):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            return _saved(request, form, wish)
        except (Refused, Conflict) as error:
            form.show(error)
    listed = [_listed(each) for each in wishes]
    context = {"form": form, "wish": wish, "wishes": listed, "channels": names, **_around(request, actor)}
    status = 422 if form.errors else 200
    return render(request, "workloads/notifications.html", context, status=status)


@login_required
@require_POST
def switch(request: HttpRequest) -> HttpResponse:
    """Mail on or off for the installation."""
    wanted = {"yes": True, "no": False}.get(request.POST.get("on", ""))
    if copied := copies_of_act(request, twins.mail_switched(on=bool(wanted))):
        return copied
    row = notifications.set_state(actor=actor_of(request), enabled=wanted)
    if row.email:
        messages.success(request, _("Mail is on: what happens from now on is told."))
    else:
        messages.success(request, _("Mail is off: nothing leaves, and what happens meanwhile is never told."))
    return redirect(PAGE)


def _around(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    page = page_of(deliveries_of(actor), column="-id", after=request.GET.get("after", ""), size=PAGE_SIZE)
    manages = can(actor, Verb.MANAGE_ORGANISATION)
    return {
        "page": page,
        "told": told(actor, page.rows),
        "mail_is_on": notifications.state().email,
        "address": own_address(str(actor.kind), actor.id),
        "manages": manages,
        "uses": channel_uses() if manages else [],
    }


def _chosen(wishes: list[Subscription], key: str) -> Subscription | None:
    """The one that the URL names; otherwise the first, if there is one. Absent for what is not one of them."""
    if key in {"", NEW}:
        return None if key else next(iter(wishes), None)
    found = next((each for each in wishes if str(each.pk) == key), None)
    if found is None:
        raise Absent
    return found


def _listed(wish: Subscription) -> tuple[Subscription, list[str], list[str]]:
    """A subscription with the names of what is told and by what."""
    types = [name for each in wish.events for name in each["types"]]
    return wish, types, [each.name for each in wish.channels.all()]


def _saved(request: HttpRequest, form: WishForm, wish: Subscription | None) -> HttpResponse:
    actor, events, names = actor_of(request), form.events, form.cleaned_data["channels"]
    if wish is not None and not events:
        notifications.unsubscribe(key=wish.pk, actor=actor)
        messages.success(request, _("Saved: you are not told of it any more, nor of what was on its way."))
        return redirect(PAGE)
    if wish is None:
        wish = notifications.subscribe(events=events, names=names, actor=actor)
    else:
        wish = notifications.change_subscription(key=wish.pk, events=events, names=names, actor=actor)
    _wish, types, _names = _listed(wish)
    said = _("Saved: from now on you are told of %(events)s by %(channels)s.")
    messages.success(request, said % {"events": ", ".join(types), "channels": ", ".join(names)})
    return redirect(f"{reverse(PAGE)}?subscription={wish.pk}")
