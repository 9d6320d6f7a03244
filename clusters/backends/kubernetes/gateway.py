"""A real API server as a `ClusterGateway`: plain dictionaries, one field manager, errors of our own only."""

import math
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from clusters.backends.kubernetes.protocol import (
    OURS,
    collection_path,
    continuation,
    error_for,
    events,
    group_path,
    has_no_log,
    is_absent,
    list_members,
    object_path,
    parent_path,
    parse_object,
    query_string,
    update_body,
    without_managed_fields,
)
from clusters.backends.kubernetes.transport import LIMITS, Answer, HttpTransport, StreamIdle, TransportLimits
from clusters.backends.rate_limit import MOST, RateLimiter
from clusters.ports.connection import CheckedAddress, Connection
from clusters.ports.gateway import (
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Kind,
    ListPage,
    Manifest,
    NotServed,
    ObjectRef,
    VersionConflict,
    VersionExpired,
    WatchEvent,
    collect_pages,
)
from clusters.ports.objects import CREATION_ORDER, MANAGER, NAMESPACE, ref_of

PAGE: Final = 500
SMALL_PAGE: Final = 2000
SMALL: Final = frozenset(CREATION_ORDER)
"""Kinds whose objects are a kilobyte or so: fewer, longer pages."""
MOST_PAGES: Final = 4000  # two million objects: a list that goes on is none
WATCHES: Final = 64  # connections kept for watches: one for each kind that is followed
BOOKMARKS: Final = 75.0  # seconds: API servers send a bookmark about every minute
QUIET: Final = 0.03  # seconds without a byte after which a watch that does not wait is complete
SLACK: Final = 5.0  # seconds that a server may take to end a watch whose time is over
LOG_BYTES: Final = 1 << 20
LOG_SECONDS: Final = 8.0
"""A person waits for a log, and a thread of the portal with them."""
DISCOVERY_AGE: Final = 600.0
ABSENCE_AGE: Final = 60.0
"""Seconds for which a cluster is believed to serve a kind, and not to serve it: operators are installed."""
METADATA_ONE: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
BORN_WITH: Final = frozenset({"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"})
Manifests = list[Manifest]
SYSTEM: Final = ObjectRef(NAMESPACE, "kube-system")


class KubernetesGateway:
    """One cluster through one credential. Thread-safe; made after a fork, never before one."""

    def __init__(
        self,
        connection: Connection,
        target: CheckedAddress,
        *,
        name: str,
        manager: str = MANAGER,
        limits: TransportLimits = LIMITS,
    ) -> None:
        self.name = name
        self._manager = manager
        self._limits = limits
        self._signed = query_string(fieldManager=manager, fieldValidation="Strict")
        self._valve = RateLimiter(name)
        self._transport = HttpTransport(connection, target, connections=MOST, limits=limits)
        self._watches = HttpTransport(connection, target, connections=WATCHES, limits=limits)
        self._served: dict[str, tuple[float, frozenset[str]]] = {}
        self._version = (-math.inf, "")
        self._lock = threading.Lock()

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        managed_only: bool = True,
        metadata_only: bool = False,
        stale: bool = False,
    ) -> tuple[Manifests, str]:
        """`stale`: what the server's cache holds will do."""
        selector = OURS if managed_only else ""
        options: dict[str, str | int] = {"resourceVersion": "0"} if stale else {}
        path, accept = collection_path(kind, namespace), METADATA_LIST if metadata_only else ""
        return collect_pages(self._pages(kind, path, {"labelSelector": selector, **options}, accept))

    def pages(self, kind: Kind) -> Iterator[ListPage]:
        yield from self._pages(kind, collection_path(kind), {"labelSelector": OURS})

    def get(self, ref: ObjectRef) -> Manifest | None:
        answer = self._ask("GET", object_path(ref))
        return None if is_absent(answer.status, answer.body) else _object(answer)

    def create(self, manifest: Manifest) -> Manifest:
        metadata = {key: value for key, value in manifest["metadata"].items() if key not in BORN_WITH}
        path = parent_path(_ref(manifest)) + self._signed
        return _object(self._ask("POST", path, body=orjson.dumps({**manifest, "metadata": metadata})))

    def try_create(self, manifest: Manifest) -> None:
        """Create on trial: every check of the server is made, nothing is stored. Raises what a creation would."""
        path = parent_path(_ref(manifest)) + query_string(fieldValidation="Strict", dryRun="All")
        _checked(self._ask("POST", path, body=orjson.dumps(manifest)))

    def part(self, ref: ObjectRef, name: str) -> Manifest | None:
        """A subresource of the object, as it is answered; None where there is none."""
        answer = self._ask("GET", f"{object_path(ref)}/{name}")
        return None if answer.status == 404 else _checked(answer)

    def update(self, manifest: Manifest, *, observed: Manifest) -> Manifest:
        path = object_path(_ref(manifest)) + self._signed
        body = update_body(manifest, observed, manager=self._manager)
        return _object(self._ask("PUT", path, body=orjson.dumps(body)))

    def delete(self, ref: ObjectRef, *, uid: str | None = None) -> None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        answer = self._ask("DELETE", object_path(ref), body=orjson.dumps(options))
        if is_absent(answer.status, answer.body):
            return
        try:
            _checked(answer)
        except VersionConflict:
            if not self._is_gone(ref, uid):
                raise

    def watch(self, kind: Kind, *, since: str, wait: float = 0.0, metadata_only: bool = False) -> Iterator[WatchEvent]:
        if not (since.isascii() and since.isdecimal()):
            raise VersionExpired(f"Version {since[:32]!r} is too old for a watch: list again.")
        seconds = max(1, math.floor(wait * random.uniform(0.8, 1.0)))  # noqa: S311 - spreads the ends of watches
        path = collection_path(kind) + query_string(
            watch=1, resourceVersion=since, allowWatchBookmarks="true", timeoutSeconds=seconds
        )
        until = time.monotonic() + seconds + SLACK
        accept = METADATA_ONE if metadata_only else ""
        with self._valve.judged(), self._watches.stream(path, accept=accept) as stream:
            if stream.status != 200:
                self._note(error := error_for(stream.status, stream.headers, stream.body()))
                raise error
            self._note(None)
            try:
                yield from events(stream.lines(until=until, quiet=BOOKMARKS if wait else QUIET))
            except StreamIdle as silence:
                if wait:
                    raise ClusterUnreachable("The watch received no data.") from silence

    def logs(self, ref: ObjectRef, *, container: str = "", tail: int = 200) -> Sequence[str]:
        """The last lines, of at most LOG_BYTES together; what is not UTF-8 is replaced."""
        path = f"{object_path(ref)}/log" + query_string(container=container, tailLines=tail, limitBytes=LOG_BYTES)
        answer = self._ask("GET", path, accept="*/*", cap=2 * LOG_BYTES, seconds=LOG_SECONDS)
        if has_no_log(answer.status, answer.body):
            return []
        if answer.status != 200:
            raise error_for(answer.status, answer.headers, answer.body)
        text = answer.body[:LOG_BYTES].decode(errors="replace").removesuffix("\n")
        return text.split("\n")[-tail:] if text and tail else []  # a carriage return ends no line

    def identity(self) -> tuple[str, str]:
        """(uid of kube-system, gitVersion); the version is believed for ten minutes."""
        system = self.get(SYSTEM)
        uid = system["metadata"].get("uid") if system else None
        if not isinstance(uid, str) or not uid:
            raise ClusterRefused("Not a Kubernetes cluster: the namespace kube-system does not exist.")
        at, version = self._version
        if time.monotonic() - at > DISCOVERY_AGE:
            version = self.version()
            self._version = (time.monotonic(), version)
        return uid, version

    def version(self) -> str:
        """The server's gitVersion, such as v1.36.3."""
        return str(_checked(self._ask("GET", "/version", cap=1 << 16)).get("gitVersion", ""))[:63]

    def review(self, kind: Kind, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The status that the server gives to a question which it does not store, such as a SelfSubjectAccessReview."""
        question = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        answer = _checked(self._ask("POST", collection_path(kind), body=orjson.dumps(question), cap=1 << 20))
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

    def serves(self, kind: Kind) -> bool:
        """Whether the cluster knows the kind; a yes is believed for ten minutes, a no for one."""
        path = group_path(kind)
        with self._lock:
            at, plurals = self._served.get(path, (-math.inf, frozenset()))
        if time.monotonic() - at > (DISCOVERY_AGE if kind.plural in plurals else ABSENCE_AGE):
            plurals = self._discovered(path)
            with self._lock:
                self._served[path] = (time.monotonic(), plurals)
        return kind.plural in plurals

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()
        self._watches.close()

    @property
    def at_once(self) -> int:
        """How many requests the cluster takes at a time now. Further threads wait for their turn."""
        return self._valve.allowed

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        accept: str = "",
        cap: int = 0,
        seconds: float = 0.0,
    ) -> Answer:
        """One request in its turn; what came back is noted. Raises ClusterUnreachable and ClusterBusy of its own."""
        with self._valve.turn():
            answer = self._transport.ask(method, path, body=body, accept=accept, cap=cap, seconds=seconds)
        ok = answer.status < 300
        self._note(None if ok else error_for(answer.status, answer.headers, answer.body))
        return answer

    def _note(self, error: ClusterError | None) -> None:
        self._valve.answered(busy=isinstance(error, ClusterBusy), rest=float(error.retry_after or 0) if error else 0.0)

    def _pages(self, kind: Kind, path: str, options: dict[str, str | int], accept: str = "") -> Iterator[ListPage]:
        """Restart an expired continuation once."""
        first = {"limit": SMALL_PAGE if kind in SMALL else PAGE, **options}
        try:
            yield from self._once(kind, path, first, accept)
        except VersionExpired:
            yield from self._once(kind, path, first, accept)
        except NotServed as error:
            raise NotServed(f"The cluster does not serve {kind.kind} of {kind.api_version}.") from error

    def _once(self, kind: Kind, path: str, first: dict[str, str | int], accept: str) -> Iterator[ListPage]:
        """The next page is on its way while one is read, where its end says early how it goes on."""

        def page(token: str) -> Answer:
            parameters = {**first, "resourceVersion": "", "continue": token} if token else first
            return self._ask("GET", path + query_string(**parameters), accept=accept)

        left, answer = self._limits.list, page("")
        with ThreadPoolExecutor(max_workers=1) as ahead:
            for number in range(MOST_PAGES):
                left -= len(answer.body)
                if left < 0:
                    raise ClusterUnreachable(f"The list of {kind.plural} is too long.")
                guess = continuation(answer.body)
                following = ahead.submit(page, guess) if guess else None
                some, token, version = list_members(kind, _checked(answer))
                yield ListPage(some, version, first=number == 0)
                if not token:
                    return
                answer = following.result() if following and guess == token else page(token)
        raise ClusterUnreachable(f"The list of {kind.plural} does not end.")

    def _discovered(self, path: str) -> frozenset[str]:
        answer = self._ask("GET", path, cap=4 << 20)
        if answer.status == 404:
            return frozenset()
        resources = _checked(answer).get("resources")
        named = (each for each in resources if isinstance(each, dict)) if isinstance(resources, list) else ()
        return frozenset(str(each.get("name")) for each in named)

    def _is_gone(self, ref: ObjectRef, uid: str | None) -> bool:
        """Another object holds the name, or this one is on its way out already."""
        found = self.get(ref)
        if found is None or uid not in {None, found["metadata"].get("uid")}:
            return True
        return "deletionTimestamp" in found["metadata"]


def _ref(manifest: Manifest) -> ObjectRef:
    try:
        return ref_of(manifest)
    except KeyError as error:
        raise ClusterRefused(f"Kind not served: {error.args[0]}.") from error


def _checked(answer: Answer) -> dict[str, Any]:
    if not 200 <= answer.status < 300:
        raise error_for(answer.status, answer.headers, answer.body)
    return parse_object(answer.body)


def _object(answer: Answer) -> Manifest:
    return without_managed_fields(_checked(answer))
