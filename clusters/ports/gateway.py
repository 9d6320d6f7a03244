"""The gateway to an API server: its protocol, kinds, references and lists; and GPU readings of a Prometheus. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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
