"""The acting subject and its channel. Every service takes an `Actor`; every audit record names one."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypedDict


class ActorKind(StrEnum):
    """What sort of subject acts."""

    USER = "user"
    SERVICE_ACCOUNT = "service-account"
    SYSTEM = "system"


class Channel(StrEnum):
    """The door through which an action came in."""

    UI = "ui"
    API = "api"
    ADMIN = "admin"
    CLI = "cli"
    WORKER = "worker"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class CredentialLimits:
    """What a credential narrows its subject to: to reading, to one project or to one department.

    `key` is the id of the access key, for the audit.
    """

    key: str = ""
    read_only: bool = False
    project_id: int | None = None
    department_id: int | None = None

    @property
    def bound(self) -> bool:
        return self.project_id is not None or self.department_id is not None


class RequestOrigin(TypedDict):
    """Where an action comes from: the door, and the request that asked, as keywords of `Actor`."""

    channel: Channel
    source_ip: str | None
    request_id: str
    http_method: str
    url: str


OVER_REST: Final[RequestOrigin] = {
    "channel": Channel.API,
    "source_ip": None,
    "request_id": "",
    "http_method": "",
    "url": "",
}
"""Of no request in particular."""


@dataclass(frozen=True, slots=True)
class Actor:
    """A subject and its door. `id` is the primary key of the user or service account as text, empty for the system."""

    kind: ActorKind
    id: str
    name: str
    channel: Channel
    source_ip: str | None = None
    request_id: str = ""
    limits: CredentialLimits | None = None
    http_method: str = ""
    url: str = ""
    """Path of the request, without its query string; empty where no request asked."""

    def through(self, channel: Channel) -> "Actor":
        """The same subject through another door."""
        return replace(self, channel=channel)


SYSTEM = Actor(kind=ActorKind.SYSTEM, id="", name="rung", channel=Channel.WORKER)
