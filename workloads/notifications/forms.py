"""The forms of notifications: a subscription, a mail channel, and a test of one."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django import forms
from django.utils.text import slugify
from django.utils.translation import gettext_lazy as _

from portal.kit.pages.forms import PageForm
from workloads.notifications.models import NotificationChannel, Subscription
from workloads.notifications.rules import CHANGES, EVICTION, FINDINGS, LIMITS, NOTIFICATION_TYPES, QUOTA, STATUS
from workloads.notifications.services.mail import MOST_RECIPIENTS, SUBJECT, completed

CATEGORIES: Final[Mapping[str, Any]] = {
    EVICTION: _("It is evicted"),
    STATUS: _("Its state changes"),
    LIMITS: _("A limit of its project is reached or close"),
    FINDINGS: _("A detector finds a scheduling problem"),
    QUOTA: _("Quota is requested or decided"),
    CHANGES: _("Anything changes (webhooks only)"),
}
SIGNING_IN: Final = (
    ("auth_login", _("user name and password (LOGIN)")),
    ("auth_plain", _("user name and password (PLAIN)")),
    ("auth_none", _("none")),
)
PLACES: Final = "{{ .category }} {{ .reason }} {{ .workload }} {{ .project }}"


def _ticked(label: Any, choices: Sequence[tuple[str, Any]]) -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(label=label, choices=choices, required=False, widget=forms.CheckboxSelectMultiple)


class SubscriptionForm(PageForm):
    """Types of events by category, and channels. Nothing ticked is no wish."""

    def __init__(self, *args: Any, channels: Mapping[str, str], old: Subscription | None, **kwargs: Any) -> None:
        super().__init__(*args, initial=_initial(list(channels), old), **kwargs)
        self._old = old
        for category, title in CATEGORIES.items():
            kinds = [
                (each.type, f"{each.type}: {each.description}")
                for each in NOTIFICATION_TYPES
                if each.category == category
            ]
            self.fields[slugify(category)] = _ticked(title, kinds)
        self.fields["channels"] = _ticked(_("Channels"), list(channels.items()))

    @property
    def events(self) -> list[dict[str, Any]]:
        """What is ticked, in Run:ai's shape."""
        ticked = {category: self.cleaned_data.get(slugify(category), []) for category in CATEGORIES}
        return [{"category": category, "types": types} for category, types in ticked.items() if types]

    def clean(self) -> dict[str, Any]:
        """A new subscription needs a type, and every type a channel."""
        if not self.errors and not self.events and self._old is None:
            self.add_error(None, _("Select at least one event."))
        if not self.errors and self.events and not self.cleaned_data["channels"]:
            self.add_error("channels", _("Select at least one channel."))
        return self.cleaned_data


def _initial(channels: Sequence[str], old: Subscription | None) -> dict[str, Any]:
    """What is wanted already; the only channel where nothing is."""
    if old is None:
        return {"channels": channels if len(channels) == 1 else []}
    ticked = {slugify(each["category"]): each["types"] for each in old.events}
    return {**ticked, "channels": [each.name for each in old.channels.all()]}


def _line(label: Any, hint: Any = "", *, required: bool = False, longest: int = 254) -> forms.CharField:
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    return forms.CharField(label=label, help_text=hint, required=required, max_length=longest, widget=widget)


class ChannelForm(PageForm):
    """A mail server and what its messages look like. What it may be is the service's to judge."""

    name = _line(
        _("Name"), _("Lower-case letters, digits and dashes. Users select the channel by this name."), longest=63
    )
    smtp_host = _line(_("Mail server"), _("A host name or an IP address."), required=True, longest=253)
    smtp_port = forms.IntegerField(
        label=_("Port"),
        min_value=1,
        max_value=65535,
        help_text=_("587 for STARTTLS, 465 for TLS."),
    )
    smtp_tls_enabled = forms.BooleanField(label=_("Require TLS"), required=False)
    auth_type = forms.ChoiceField(label=_("Sign-in"), choices=SIGNING_IN)
    username = _line(_("User name"))
    password = forms.CharField(
        label=_("Password"),
        required=False,
        strip=False,
        max_length=1000,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    sender = _line(_("From"), _("Sender address."), required=True)
    from_display_name = _line(_("Sender name"), longest=100)
    subject = _line(_("Subject"), _("Placeholders: %(places)s") % {"places": PLACES}, longest=200)
    direct_notifications = forms.BooleanField(label=_("Send to subscribers"), required=False)
    recipients = forms.CharField(
        label=_("Additional recipients"),
        help_text=_("One address per line, such as a team's. Each gets one message per event."),
        required=False,
        max_length=MOST_RECIPIENTS * 255,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, old: NotificationChannel | None = None, **kwargs: Any) -> None:
        super().__init__(*args, initial=self.of(old), **kwargs)
        if old is not None:
            del self.fields["name"]
        if old is not None and old.sealed:
            hint = _("Leave empty to keep the stored password. A new server, port or user name needs it again.")
            self.fields["password"].help_text = hint

    @classmethod
    def of(cls, row: NotificationChannel | None) -> dict[str, Any]:
        """What the fields hold: all but the password."""
        held = completed(row.config if row else {})
        return {
            "name": "" if row else "email",
            **{field: held[key] for key, field in KEYS.items() if key in held},
            "auth_type": held["authType"] or "auth_none",
            "subject": held["subject"] or SUBJECT,
            "recipients": "\n".join(held["recipients"]),
        }

    @property
    def config(self) -> dict[str, Any]:
        """As the service takes it; an empty text is none."""
        given = self.cleaned_data
        lines = [each.strip() for each in given["recipients"].splitlines()]
        chosen = {key: given[field] for key, field in KEYS.items()}
        texts = {key: value or None for key, value in chosen.items() if isinstance(value, str)}
        return {**chosen, **texts, "recipients": [each for each in lines if each]}


KEYS: Final[Mapping[str, str]] = {
    "smtpHost": "smtp_host",
    "smtpPort": "smtp_port",
    "smtpTlsEnabled": "smtp_tls_enabled",
    "authType": "auth_type",
    "username": "username",
    "password": "password",
    "from": "sender",
    "fromDisplayName": "from_display_name",
    "subject": "subject",
    "directNotifications": "direct_notifications",
}
"""Run:ai's keys and the fields that ask for them; recipients are lines of one field."""
POINTERS: Final[Mapping[str, str]] = {
    "/config/recipients": "recipients",
    **{f"/config/recipients/{number}": "recipients" for number in range(MOST_RECIPIENTS)},
    **{f"/config/{key}": field for key, field in KEYS.items()},
}
"""Where what the service refuses was typed."""


class TestMessageForm(PageForm):
    to = _line(_("To"), required=True)


class WebhookForm(PageForm):
    """Where a webhook sends. What the address may be is the service's to judge."""

    name = _line(
        _("Name"),
        _("Lower-case letters, digits and dashes. Users select the webhook by this name."),
        required=True,
        longest=63,
    )
    url = _line(_("URL"), _("https://host[:port], with a path and a query if needed."), required=True, longest=1000)

    def __init__(self, *args: Any, old: NotificationChannel | None = None, **kwargs: Any) -> None:
        super().__init__(*args, initial={"url": old.config["url"]} if old else {}, **kwargs)
        if old is not None:
            del self.fields["name"]
