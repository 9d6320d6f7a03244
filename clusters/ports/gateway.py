"""The gateway to an API server: its protocol, kinds, references, lists and errors; GPU readings of a Prometheus. Pure.

ClusterError
├── ClusterUnreachable     transient   refused, timed out, DNS, TLS, an answer that cannot be read
├── ClusterBusy            transient   429, 5xx; carries `retry_after` seconds
├── VersionExpired         transient   410: the watch must list again
├── NotSynced              transient   the namespace is not there yet: the next reconcile brings it
├── FlavourSwitched        transient   an admin changed the scheduler: start over
├── ClusterRefused         permanent   the server, or a rule of ours, says no; carries the reason
│   ├── NotAuthorized      permanent   401, or 403 because the account may not do this
│   ├── Invalid            permanent   400, 422: the object itself; the message is the server's own sentence
│   ├── AdmissionDenied    permanent   403 of this object by an admission plugin: Pod Security, a webhook, a policy
│   ├── QuotaExceeded      permanent   403 because a quota of the namespace has no room
│   ├── NotServed          permanent   404 because the cluster does not know the kind
│   ├── AddressRefused     permanent   the server's address is none that Rung may connect to
│   └── CredentialUnreadable permanent no credential is stored, or its seal does not open
├── ObjectConflict         permanent   a foreign object or manager holds the name or field
│   └── VersionConflict    transient   another writer changed it between our read and our write: read again
├── ClusterChanged         permanent   another kube-system uid behind the same address
├── LaterGeneration        permanent   the cluster holds a later generation: the writer is late
├── WaitsForLowering       permanent   a raise that must not come before a lowering which failed
├── WaitsForSuccessor      permanent   a former scheduler's object, while the new one's are not all there
└── NamespaceInUse         permanent   an unwanted namespace still holds work
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

Manifest = dict[str, Any]


class Kind(NamedTuple):
    """A Kubernetes kind with what is needed to build its path. The core group is the empty string."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """`Job.batch`; `Pod` for the core group. The same for every version."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class ObjectRef(NamedTuple):
    """Names one object. A tuple, since whole clusters are looked up by it."""

    kind: Kind
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED or DELETED, with the object as it then stood; BOOKMARK with a resourceVersion only."""

    type: str
    manifest: Manifest


class ListPage(NamedTuple):
    """Some objects of a list, with its resourceVersion. `first`: the list begins; what came of it before is void."""

    objects: list[Manifest]
    version: str
    first: bool = True


class ClusterGateway(Protocol):
    """What Rung needs of an API server. Raises only ClusterError, which says whether a retry can help."""

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        managed_only: bool = True,
        metadata_only: bool = False,
        stale: bool = False,
    ) -> tuple[list[Manifest], str]:
        """Every object of the kind with the list's resourceVersion. `NotServed`: the cluster does not know the kind.

        `metadata_only`: apiVersion, kind and metadata will do. `stale`: an answer from a cache, perhaps older, will do.
        """

    def pages(self, kind: Kind) -> Iterator[ListPage]:
        """The same list of everything that Rung manages, in parts as they arrive; it may restart on the way."""

    def get(self, ref: ObjectRef) -> Manifest | None:
        """The object, or None."""

    def create(self, manifest: Manifest) -> Manifest:
        """Create; `ObjectConflict` if the name is taken."""

    def update(self, manifest: Manifest, *, observed: Manifest) -> Manifest:
        """Replace what Rung owns; `VersionConflict` unless the observed resourceVersion still holds.

        `observed` is the whole object as it was read, not its metadata alone. A field that Rung wrote before and that
        is not in the manifest goes. What others wrote, what the server filled in, status and identity stay.
        """

    def delete(self, ref: ObjectRef, *, uid: str | None = None) -> None:
        """Delete with the object's own grace; gone already is success; another uid is left alone."""

    def watch(self, kind: Kind, *, since: str, wait: float = 0.0, metadata_only: bool = False) -> Iterator[WatchEvent]:
        """Changes after a resourceVersion. `VersionExpired`: list again. `ClusterUnreachable`: cut off or silent.

        Without `wait` it ends when there is nothing more for now; with it, it goes on for at most so many seconds
        where the cluster can. Bookmarks carry nothing but a newer `metadata.resourceVersion`.
        """

    def logs(self, ref: ObjectRef, *, container: str = "", tail: int = 200) -> Sequence[str]:
        """The last lines a pod wrote."""

    def identity(self) -> tuple[str, str]:
        """(uid of kube-system, server version)."""

    def serves(self, kind: Kind) -> bool:
        """Whether the cluster knows the kind."""


def collect_pages(pages: Iterable[ListPage]) -> tuple[list[Manifest], str]:
    """The whole list of these pages, with its version."""
    found: list[Manifest] = []
    version = ""
    for page in pages:
        if page.first:
            found = []
        found += page.objects
        version = page.version
    return found, version


@dataclass(frozen=True, slots=True)
class GpuUtilization:
    """How busy the busiest GPU of a pod is, in percent, rounded up: 0 means that all of them do nothing."""

    namespace: str
    pod: str
    percent: int


class ClusterError(Exception):
    """Base. `transient` says whether the same call may succeed later."""

    transient: ClassVar[bool] = False
    code: ClassVar[str] = "cluster_error"

    def __init__(self, message: str, *, retry_after: int | None = None, pointer: str = "") -> None:
        """`retry_after` in seconds, where the server says it; `pointer`: JSON pointer to the field it refuses."""
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.pointer = pointer


class TransientClusterError(ClusterError):
    """A retry can help."""

    transient = True


class ClusterUnreachable(TransientClusterError):
    """Refused, timed out, DNS, TLS, or an answer that cannot be read."""

    code = "cluster_unreachable"


class ClusterBusy(TransientClusterError):
    """429 or 5xx."""

    code = "cluster_busy"


class VersionExpired(TransientClusterError):
    """410 Gone."""

    code = "version_expired"


class ClusterRefused(ClusterError):
    """The server says no, and will say so again."""

    code = "cluster_refused"


class NotAuthorized(ClusterRefused):
    """The credential is not accepted, or its account may not do this."""

    code = "not_authorized"


class Invalid(ClusterRefused):
    """The object is not valid: the message is the server's own sentence."""

    code = "invalid"


class AdmissionDenied(ClusterRefused):
    """Admission refuses this object: Pod Security, a webhook or a policy, in its own sentence."""

    code = "admission_denied"


class QuotaExceeded(ClusterRefused):
    """A quota of the namespace has no room for the object."""

    code = "quota_exceeded"


class NotServed(ClusterRefused):
    """The cluster does not know the kind."""

    code = "not_served"


class AddressRefused(ClusterRefused):
    """The server's address is none that Rung may connect to."""

    code = "address_refused"


class CredentialUnreadable(ClusterRefused):
    """No credential is stored, or its seal does not open."""

    code = "credential_unreadable"


class ObjectConflict(ClusterError):
    """A foreign object or manager holds the name or field."""

    code = "object_conflict"


class VersionConflict(ObjectConflict, TransientClusterError):
    """The object is not the one that was read any more."""

    code = "version_conflict"


class ClusterChanged(ClusterError):
    """Another cluster answers at the same address."""

    code = "cluster_changed"


class NotSynced(TransientClusterError):
    """Something the write depends on is not in the cluster yet; the next reconcile creates it."""

    code = "not_synced"


class FlavourSwitched(TransientClusterError):
    """What was looked at belongs to the scheduler before."""

    code = "flavour_switched"


class LaterGeneration(ClusterError):
    """The cluster holds a later generation than the writer."""

    code = "later_generation"


class WaitsForLowering(ClusterError):
    """Another quota of the same owner could not be lowered first."""

    code = "waits_for_lowering"


class WaitsForSuccessor(ClusterError):
    """The new scheduler's objects are not all there, so the old one's stay."""

    code = "waits_for_successor"


class NamespaceInUse(ClusterError):
    """Deleting the namespace would take work along."""

    code = "namespace_in_use"
