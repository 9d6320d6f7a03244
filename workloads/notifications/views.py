"""Pages of notifications: my subscriptions and messages, and for platform admins the mail channels and webhooks."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.kit.db.keyset_pagination import page_of
from portal.kit.errors import Conflict, NotFound, ValidationFailed
from portal.kit.pages.api_snippets import action_snippet, form_snippets
from portal.kit.pages.forms import form_data
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import can
from workloads.notifications.forms import POINTERS, ChannelForm, SubscriptionForm, TestMessageForm, WebhookForm
from workloads.notifications.models import NotificationChannel, Subscription
from workloads.notifications.selectors import (
    channel_uses,
    deliveries_by,
    deliveries_of,
    own_address,
    readable_deliveries,
    use_of,
)
from workloads.notifications.serializers import (
    channel_delete_request,
    channel_request,
    mail_switch_request,
    subscription_request,
    test_message_request,
    webhook_action_request,
    webhook_delete_request,
    webhook_request,
)
from workloads.notifications.services import channels, webhooks
from workloads.notifications.services.channels import send_trial

LIST: Final = "workloads:notifications"
ONE: Final = "workloads:channel"
WEBHOOK_PAGE: Final = "workloads:webhook"
MAIL: Final = "email"


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    channels.require_channels(actor)
    form = ChannelForm(form_data(request))
    if shown := form_snippets(request, form, lambda: channel_request(None, form.cleaned_data["name"], form.config)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            name = form.cleaned_data["name"]
            row = channels.add_channel(name=name, type_=MAIL, config=form.config, actor=actor)
        except (ValidationFailed, Conflict) as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Channel added. Send a test message to check it."))
            return redirect(ONE, name=row.name)
    return render(request, "workloads/notifications/channel.html", {"form": form}, status=422 if form.errors else 200)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    row = channels.channel_named(name=name, actor=actor)
    form = ChannelForm(form_data(request), old=row)
    if shown := form_snippets(request, form, lambda: channel_request(row, row.name, form.config)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            channels.change_channel(row=row, type_=row.type, config=form.config, actor=actor, merge=False)
        except ValidationFailed as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Saved. Waiting messages use the new settings."))
            return redirect(ONE, name=row.name)
    return _page(request, row, form, _trial(request))


@login_required
@require_POST
def try_it(request: HttpRequest, name: str) -> HttpResponse:
    """A test message by it, as it is kept."""
    actor = actor_of(request)
    row = channels.channel_named(name=name, actor=actor)
    trial = TestMessageForm(request.POST)
    if shown := form_snippets(request, trial, lambda: test_message_request(row, trial.cleaned_data["to"])):
        return shown
    if trial.is_valid():
        to = trial.cleaned_data["to"]
        try:
            trouble = send_trial(row=row, to=to, actor=actor)
        except ValidationFailed as error:
            trial.show(error)
        else:
            _show_result(request, to, trouble)
            return redirect(ONE, name=row.name)
    return _page(request, row, ChannelForm(old=row), trial)


@login_required
@require_POST
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Gone, with what waited for it."""
    actor = actor_of(request)
    row = channels.channel_named(name=name, actor=actor)
    if copied := action_snippet(request, channel_delete_request(row)):
        return copied
    channels.remove_channel(row=row, actor=actor)
    messages.success(request, _("Deleted channel %(name)s.") % {"name": row.name})
    return redirect(LIST)


def _show_result(request: HttpRequest, to: str, trouble: str) -> None:
    if trouble:
        messages.error(request, _("The test message to %(to)s failed. %(trouble)s") % {"to": to, "trouble": trouble})
    else:
        messages.success(request, _("The mail server accepted a test message for %(to)s.") % {"to": to})


def _trial(request: HttpRequest) -> TestMessageForm:
    actor = actor_of(request)
    return TestMessageForm(initial={"to": own_address(str(actor.kind), actor.id)})


def _page(request: HttpRequest, row: NotificationChannel, form: ChannelForm, trial: TestMessageForm) -> HttpResponse:
    context = {"form": form, "trial": trial, "channel": row, "use": use_of(row)}
    status = 422 if form.errors or trial.errors else 200
    return render(request, "workloads/notifications/channel.html", context, status=status)


PAGE: Final = "workloads:notifications"
PAGE_SIZE: Final = 25
NEW: Final = "new"


@login_required
@require_http_methods(["GET", "POST"])
def mine(request: HttpRequest) -> HttpResponse:
    """The user's subscriptions, one at a time, and their newest messages."""
    actor = actor_of(request)
    wishes = list(channels.subscriptions_of(actor))
    wish = _chosen(wishes, request.GET.get("subscription", ""))
    names = channels.channel_titles()
    form = SubscriptionForm(form_data(request), channels=names, old=wish)
    if shown := form_snippets(
        request, form, lambda: subscription_request(wish, form.events, form.cleaned_data["channels"])
    ):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            return _saved(request, form, wish)
        except (ValidationFailed, Conflict) as error:
            form.show(error)
    listed = [_listed(each) for each in wishes]
    context = {"form": form, "wish": wish, "wishes": listed, "channels": names, **_around(request, actor)}
    status = 422 if form.errors else 200
    return render(request, "workloads/notifications/notifications.html", context, status=status)


@login_required
@require_POST
def switch(request: HttpRequest) -> HttpResponse:
    wanted = {"yes": True, "no": False}.get(request.POST.get("on", ""))
    if copied := action_snippet(request, mail_switch_request(on=bool(wanted))):
        return copied
    row = channels.set_state(actor=actor_of(request), enabled=wanted)
    if row.email:
        messages.success(request, _("E-mail enabled. New events are reported."))
    else:
        messages.success(
            request, _("E-mail disabled. No messages are sent, and events in the meantime are never reported.")
        )
    return redirect(PAGE)


def _around(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    page = page_of(deliveries_of(actor), column="-id", after=request.GET.get("after", ""), size=PAGE_SIZE)
    manages = can(actor, Permission.MANAGE_ORGANISATION)
    return {
        "page": page,
        "deliveries": readable_deliveries(actor, page.rows),
        "mail_is_on": channels.state().email,
        "has_mail_server": channels.has_mail_server(),
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
        raise NotFound
    return found


def _listed(wish: Subscription) -> tuple[Subscription, list[str], list[str]]:
    """A subscription with the names of its types and channels."""
    types = [name for each in wish.events for name in each["types"]]
    return wish, types, [each.name for each in wish.channels.all()]


def _saved(request: HttpRequest, form: SubscriptionForm, wish: Subscription | None) -> HttpResponse:
    actor, events, names = actor_of(request), form.events, form.cleaned_data["channels"]
    if wish is not None and not events:
        channels.unsubscribe(key=wish.pk, actor=actor)
        messages.success(request, _("Unsubscribed. Waiting messages were dropped."))
        return redirect(PAGE)
    if wish is None:
        wish = channels.subscribe(events=events, names=names, actor=actor)
    else:
        wish = channels.change_subscription(key=wish.pk, events=events, names=names, actor=actor)
    _wish, types, _names = _listed(wish)
    message = _("Subscribed to %(events)s via %(channels)s.")
    messages.success(request, message % {"events": ", ".join(types), "channels": ", ".join(names)})
    return redirect(f"{reverse(PAGE)}?subscription={wish.pk}")


SHOWN: Final = 10
"""How many of a webhook's messages its page lists."""


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def add_webhook(request: HttpRequest) -> HttpResponse:
    """A new webhook; the answer shows its secret, once."""
    actor = actor_of(request)
    channels.require_channels(actor)
    form = WebhookForm(form_data(request))
    if shown := form_snippets(
        request, form, lambda: webhook_request(None, form.cleaned_data["name"], form.cleaned_data["url"])
    ):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            row, secret = webhooks.add_webhook(actor=actor, **form.cleaned_data)
        except (ValidationFailed, Conflict) as error:
            form.show(error)
        else:
            return _show_secret(request, row, secret)
    return render(request, "workloads/notifications/webhook.html", {"form": form}, status=422 if form.errors else 200)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def edit_webhook(request: HttpRequest, name: str) -> HttpResponse:
    """Where it sends, what became of its last messages, and what can be done with it."""
    actor = actor_of(request)
    row = webhooks.webhook_named(name=name, actor=actor)
    form = WebhookForm(form_data(request), old=row)
    if shown := form_snippets(request, form, lambda: webhook_request(row, row.name, form.cleaned_data["url"])):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            webhooks.change_webhook(row=row, url=form.cleaned_data["url"], actor=actor)
        except ValidationFailed as error:
            form.show(error)
        else:
            messages.success(request, _("Saved. Waiting messages are sent to the new URL."))
            return redirect(WEBHOOK_PAGE, name=row.name)
    last = readable_deliveries(actor, list(deliveries_by(row)[:SHOWN]))
    context = {"form": form, "webhook": row, "use": use_of(row), "last": last}
    return render(request, "workloads/notifications/webhook.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def try_webhook(request: HttpRequest, name: str) -> HttpResponse:
    """A test event to it, now."""
    actor = actor_of(request)
    row = webhooks.webhook_named(name=name, actor=actor)
    if copied := action_snippet(request, webhook_action_request(row, "trial-messages")):
        return copied
    if trouble := webhooks.try_webhook(row=row, actor=actor):
        messages.error(request, _("The test event failed. %(trouble)s") % {"trouble": trouble})
    else:
        messages.success(request, _("The webhook accepted a test event."))
    return redirect(WEBHOOK_PAGE, name=row.name)


@login_required
@never_cache
@require_POST
def rotate_webhook(request: HttpRequest, name: str) -> HttpResponse:
    """Another secret, shown once. The old one signs, too, for a day."""
    actor = actor_of(request)
    row = webhooks.webhook_named(name=name, actor=actor)
    if copied := action_snippet(request, webhook_action_request(row, "secret")):
        return copied
    return _show_secret(request, row, webhooks.rotate_webhook_secret(row=row, actor=actor), rotated=True)


@login_required
@require_POST
def remove_webhook(request: HttpRequest, name: str) -> HttpResponse:
    """Gone, with what waited for it."""
    actor = actor_of(request)
    row = webhooks.webhook_named(name=name, actor=actor)
    if copied := action_snippet(request, webhook_delete_request(row)):
        return copied
    channels.remove_channel(row=row, actor=actor)
    messages.success(request, _("Deleted webhook %(name)s.") % {"name": row.name})
    return redirect(LIST)


def _show_secret(request: HttpRequest, row: NotificationChannel, secret: str, *, rotated: bool = False) -> HttpResponse:
    context = {"webhook": row, "secret": secret, "rotated": rotated}
    return render(request, "workloads/notifications/webhook_secret.html", context)
