"""Does mail arrive by a channel, or would it by one to be? Whether mail is on or off makes no difference to it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.core.mail import EmailMessage

from portal.audit.denials import recorded
from portal.audit.models import Result
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.attempts import outside
from portal.core.errors import Refused
from workloads.mailing import Connection, MailTrouble, Server, message_of
from workloads.models import NotificationChannel
from workloads.notification_config import is_mail_address, server_for
from workloads.services.notifications import checked_config, password_of, refuse_type, require_channels

ACTION: Final = "notifications.try_channel"
_HEADERS: Final[Mapping[str, str]] = {"Auto-Submitted": "auto-generated"}


def send_trial(*, row: NotificationChannel, to: str, actor: Actor, sends: bool = True) -> str:
    """One message now; answers why it was not taken, empty where it was. Waits for the server, in no transaction.

    `sends`: else the server is only asked whether it lets us in.
    """
    about = {"entity_type": "notification-channel", "entity_name": row.name}
    with recorded(actor=actor, action=ACTION, **about):
        require_channels(actor)
        if not is_mail_address(to):
            raise Refused.at("/to", "bad_address", "One plain mail address is needed.")
    trouble = _sent(row, to, actor, sends=sends)
    result = Result.FAILED if trouble else Result.SUCCEEDED
    record(actor, ACTION, row, result=result, detail={"to": to, "answer": trouble}, **about)
    return trouble


def works(*, type_: str, config: Mapping[str, Any], actor: Actor) -> bool:
    """Can this server be reached, and does it let us in? Sends no mail and keeps no configuration."""
    about = {"entity_type": "notification-channel", "entity_name": str(config.get("smtpHost", ""))[:200]}
    password = str(config.get("password") or "")
    with recorded(actor=actor, action=ACTION, **about):
        require_channels(actor)
        refuse_type(type_)
        server = server_for(checked_config(config, password), password)
    trouble = _tried(server, ())
    result = Result.FAILED if trouble else Result.SUCCEEDED
    detail = {"port": server.port, "username": server.username, "answer": trouble}
    record(actor, ACTION, None, result=result, detail=detail, **about)
    return not trouble


def _sent(row: NotificationChannel, to: str, actor: Actor, *, sends: bool) -> str:
    body = f"{actor.name} sent this by hand, to see whether mail by the channel {row.name} of Rung arrives. It does."
    message = message_of(row.config, to=to, subject=f"Rung: a test of {row.name}", body=body, headers=_HEADERS)
    try:
        server = server_for(row.config, password_of(row))
    except MailTrouble as trouble:
        return str(trouble)
    return _tried(server, [message] if sends else ())


def _tried(server: Server, messages: Sequence[EmailMessage]) -> str:
    """Why it did not take them, or us; empty where it did."""

    def send() -> str:
        try:
            with Connection(server) as connection:
                for each in messages:
                    connection.send(each)
        except MailTrouble as trouble:
            return str(trouble)
        return ""

    # What is done there is done under the key of its request, so that the same request at the same moment does it once.
    return send() if messages else outside(send)
