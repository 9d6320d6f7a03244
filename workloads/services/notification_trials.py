"""A message by hand: does a channel's mail arrive? Whether mail is on or off makes no difference to it."""

from collections.abc import Mapping
from typing import Final

from portal.audit.denials import recorded
from portal.audit.models import Result
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Refused
from workloads.mailing import Connection, MailTrouble, message_of
from workloads.models import NotificationChannel
from workloads.notification_config import is_mail_address, server_for
from workloads.services.notifications import password_of, require_channels

ACTION: Final = "notifications.try_channel"
_HEADERS: Final[Mapping[str, str]] = {"Auto-Submitted": "auto-generated"}


def send_trial(*, row: NotificationChannel, to: str, actor: Actor) -> str:
    """One message now; answers why it was not taken, empty where it was. Waits for the server, in no transaction."""
    about = {"entity_type": "notification-channel", "entity_name": row.name}
    with recorded(actor=actor, action=ACTION, **about):
        require_channels(actor)
        if not is_mail_address(to):
            raise Refused.at("/to", "bad_address", "One plain mail address is needed.")
    trouble = _sent(row, to, actor)
    result = Result.FAILED if trouble else Result.SUCCEEDED
    record(actor, ACTION, row, result=result, detail={"to": to, "answer": trouble}, **about)
    return trouble


def _sent(row: NotificationChannel, to: str, actor: Actor) -> str:
    body = f"{actor.name} sent this by hand, to see whether mail by the channel {row.name} of Rung arrives. It does."
    message = message_of(row.config, to=to, subject=f"Rung: a test of {row.name}", body=body, headers=_HEADERS)
    try:
        with Connection(server_for(row.config, password_of(row))) as connection:
            connection.send(message)
    except MailTrouble as trouble:
        return str(trouble)
    return ""
