"""Channels of mail, for platform admins: added, changed, tried by hand, removed."""

from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import Conflict, Refused
from portal.core.http import actor_of
from portal.core.pageforms import sent
from workloads import twins
from workloads.models import NotificationChannel
from workloads.notification_forms import POINTERS, ChannelForm, TrialForm
from workloads.selectors.notifications import own_address, use_of
from workloads.services import notifications
from workloads.services.notification_trials import send_trial

LIST: Final = "workloads:notifications"
ONE: Final = "workloads:channel"
MAIL: Final = "email"


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """A new one."""
    actor = actor_of(request)
    notifications.require_channels(actor)
    form = ChannelForm(sent(request))
    if shown := copies_of(request, form, lambda: twins.channel(None, form.cleaned_data["name"], form.config)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            name = form.cleaned_data["name"]
            row = notifications.add_channel(name=name, type_=MAIL, config=form.config, actor=actor)
        except (Refused, Conflict) as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Added. A test message shows whether it works."))
            return redirect(ONE, name=row.name)
    return render(request, "workloads/channel.html", {"form": form}, status=422 if form.errors else 200)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """Another configuration."""
    actor = actor_of(request)
    row = notifications.channel_named(name=name, actor=actor)
    form = ChannelForm(sent(request), old=row)
    if shown := copies_of(request, form, lambda: twins.channel(row, row.name, form.config)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            notifications.change_channel(row=row, type_=row.type, config=form.config, actor=actor, merge=False)
        except Refused as error:
            form.show(error, POINTERS)
        else:
            messages.success(request, _("Saved. What waits for it leaves this way too."))
            return redirect(ONE, name=row.name)
    return _page(request, row, form, _trial(request))


@login_required
@require_POST
def try_it(request: HttpRequest, name: str) -> HttpResponse:
    """A test message by it, as it is kept."""
    actor = actor_of(request)
    row = notifications.channel_named(name=name, actor=actor)
    trial = TrialForm(request.POST)
    if shown := copies_of(request, trial, lambda: twins.channel_tried(row, trial.cleaned_data["to"])):
        return shown
    if trial.is_valid():
        to = trial.cleaned_data["to"]
        try:
            trouble = send_trial(row=row, to=to, actor=actor)
        except Refused as error:
            trial.show(error)
        else:
            _tell(request, to, trouble)
            return redirect(ONE, name=row.name)
    return _page(request, row, ChannelForm(old=row), trial)


@login_required
@require_POST
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Gone, with what waited for it."""
    actor = actor_of(request)
    row = notifications.channel_named(name=name, actor=actor)
    if copied := copies_of_act(request, twins.channel_gone(row)):
        return copied
    notifications.remove_channel(row=row, actor=actor)
    messages.success(request, _("Deleted: nothing is told by %(name)s any more.") % {"name": row.name})
    return redirect(LIST)


def _tell(request: HttpRequest, to: str, trouble: str) -> None:
    if trouble:
        messages.error(request, _("Nothing arrived at %(to)s. %(trouble)s") % {"to": to, "trouble": trouble})
    else:
        messages.success(request, _("The mail server took a test message for %(to)s.") % {"to": to})


def _trial(request: HttpRequest) -> TrialForm:
    actor = actor_of(request)
    return TrialForm(initial={"to": own_address(str(actor.kind), actor.id)})


def _page(request: HttpRequest, row: NotificationChannel, form: ChannelForm, trial: TrialForm) -> HttpResponse:
    context = {"form": form, "trial": trial, "channel": row, "use": use_of(row)}
    status = 422 if form.errors or trial.errors else 200
    return render(request, "workloads/channel.html", context, status=status)
