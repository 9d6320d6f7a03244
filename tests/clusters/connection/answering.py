"""A cluster that answers a connection test as the test wants it, without a network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.ports.connection import Connection
from clusters.ports.gateway import ClusterError, Kind, Manifest, ObjectRef
from clusters.ports.objects import KAI_SHARD
from tests.clusters.connection.kubeconfigs import TOKEN, ca

SERVER = "https://api.example.org:6443"


@dataclass
class Answering:
    """`opened`: every connection it was opened with. `forbidden`: (resource, verb) that its account may not.

    `kinds`: keys of those it serves.
    """

    uid: str = "uid-1"
    error: ClusterError | None = None
    forbidden: frozenset[tuple[str, str]] = frozenset()
    kinds: frozenset[str] = frozenset()
    opened: list[Connection] = field(default_factory=list)
    shards: list[Manifest] = field(default_factory=list)

    def __call__(self, connection: Connection) -> "Answering":
        self.opened.append(connection)
        if self.error:
            raise self.error
        return self

    def version(self) -> str:
        return "v1.36.3"

    def identity(self) -> tuple[str, str]:
        return self.uid, self.version()

    def review(self, kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        requested = spec.get("resourceAttributes")
        if requested is None:
            return {"userInfo": {"username": "system:serviceaccount:rung-system:rung"}}
        return {"allowed": (requested["resource"], requested["verb"]) not in self.forbidden}

    def serves(self, kind: Kind) -> bool:
        return kind.key in self.kinds

    def get(self, ref: ObjectRef) -> Manifest | None:
        return None

    def list(self, kind: Kind, *, managed_only: bool = True) -> tuple[list[Manifest], str]:
        return (self.shards if kind == KAI_SHARD else []), ""

    def close(self) -> None:
        return None


def entered(**parts: Any) -> ConnectionFormData:
    """The parts of a good connection, some of them changed."""
    return ConnectionFormData(**{"server": SERVER, "ca": ca().pem, "token": TOKEN, **parts})
