"""Working states for the rules, created once per snapshot and reused for all snapshots derived from it.

A cycle changes its state and restores it afterwards, so a preview costs what it changes, not what the cluster holds. A
derived snapshot uses the state of its origin with the changed pod groups exchanged. One cycle at a time uses a state;
others wait for it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from scheduling.model.snapshot import PodGroup, Queue, Snapshot

Value = TypeVar("Value")
MOST_CACHED: Final = 64
Scope = tuple[str, str]
"""`("queue", name)`, `("group", name)`, `("node", name)`, `ALL_PODS` or `NODES`."""
ALL_PODS: Final[Scope] = ("pods", "")
NODES: Final[Scope] = ("nodes", "")


class OutOfTime(Exception):
    """The caller's time budget ended before there was an answer."""


_is_over: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("is_over", default=None)


@contextmanager
def interrupted_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Make searches inside raise OutOfTime once `is_over`, or that of an outer block, returns True. No clock here."""
    outer = _is_over.get()
    token = _is_over.set(is_over if outer is None else lambda: outer() or is_over())
    try:
        yield
    finally:
        _is_over.reset(token)


def check_time() -> None:
    """Raise OutOfTime if the budget has ended. Every repeated step of a search calls it."""
    is_over = _is_over.get()
    if is_over is not None and is_over():
        raise OutOfTime


class Workspace(Protocol):
    """A working state of a snapshot."""

    def restore(self) -> None:
        """Undo everything since the state was created or advanced."""
        ...

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups until `restore`."""
        ...

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        ...

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        ...


Space = TypeVar("Space", bound=Workspace)


class _Shared(Generic[Space]):
    """A state and the snapshot that owns it; `root` changes when a successor takes the state over."""

    def __init__(self, root: Snapshot) -> None:
        self.lock = Lock()
        self.root: Snapshot | None = root
        self.space: Space | None = None


@contextmanager
def workspace(snapshot: Snapshot, make: Callable[[Snapshot], Space]) -> Iterator[Space]:
    """The state that `make` creates for a snapshot. `make` is also the key: a function or class, not a lambda."""
    root, changes = _lineage(snapshot)
    shared: _Shared[Space] = root.workspaces.setdefault(make, _Shared(root))
    with shared.lock:
        if shared.root is not root:  # taken over while we waited
            shared = _Shared(root)
        if shared.space is None:
            shared.space = make(root)
        space = shared.space
        try:
            for gone, come in changes:
                space.exchange(gone, come)
            yield space
        except OutOfTime:
            shared.space = None  # interrupted between a change and its undoing
            raise
        finally:
            if shared.space is not None:
                space.restore()


def _lineage(snapshot: Snapshot) -> tuple[Snapshot, list[tuple[Iterable[str], Iterable[PodGroup]]]]:
    """The first origin of the snapshot, and the changes since, in order."""
    changes: list[tuple[Iterable[str], Iterable[PodGroup]]] = []
    while snapshot.origin is not None:
        changes.append((snapshot.origin.gone, snapshot.origin.come))
        snapshot = snapshot.origin.base
    return snapshot, changes[::-1]


def successor(snapshot: Snapshot, gone: Iterable[str], come: Iterable[PodGroup], *, now: int | None) -> Snapshot:
    """The same cluster at a later time, with pod groups exchanged. It takes over the states of the earlier snapshot.

    The earlier snapshot stays usable: a state is created for it again.
    """
    groups = tuple(come)
    names = frozenset(name for name in {*gone, *(group.name for group in groups)} if snapshot.group(name))
    new = snapshot.exchanged(names, groups, now=now)
    for make, shared in list(snapshot.workspaces.items()):
        with shared.lock:
            shared.root = new
            if shared.space is not None:
                shared.space.advance(names, groups)
        new.workspaces[make] = shared
    snapshot.workspaces.clear()
    for pool, shard in list(snapshot.shards.items()):
        new.shards[pool] = successor(shard, names, [group for group in groups if group.pool == pool], now=now)
    snapshot.shards.clear()
    return new


def requeued(snapshot: Snapshot, queues: tuple[Queue, ...]) -> Snapshot:
    """The same cluster, its queues with other quotas, for rules that `requeue` their state: it is derived."""
    new = snapshot.changed((), (), now=snapshot.now)
    vars(new).update(queues=queues, queue_by_name={queue.name: queue for queue in queues})
    return new


class SavedSnapshot:
    """A snapshot and its working states at one time, to which any of its successors can be rewound, again and again.

    A rewind costs two copies of what a state holds; advancing back would cost a step per pod group that has changed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._restorers = {
            make: shared.space.restore_point() for make, shared in snapshot.workspaces.items() if shared.space
        }
        self._shards = {pool: SavedSnapshot(shard) for pool, shard in snapshot.shards.items()}

    def rewind(self, later: Snapshot) -> Snapshot:
        """The snapshot again. It takes over the states of `later`; those made since then are dropped."""
        if later is self.snapshot:  # nothing has changed since, and its states are its own
            return later
        for make, shared in list(later.workspaces.items()):
            with shared.lock:
                shared.root = None
                if shared.space is not None and make in self._restorers:
                    self._restorers[make]()
                    shared.root = self.snapshot
                    self.snapshot.workspaces[make] = shared
        later.workspaces.clear()
        for pool, shard in list(later.shards.items()):
            if pool in self._shards:
                self.snapshot.shards[pool] = self._shards[pool].rewind(shard)
        later.shards.clear()
        return self.snapshot


class ScopedCache:
    """What rules compute about pods on nodes, by scope and key, until other pods are on nodes there.

    `NODES` holds regardless of pods. Evictions and placements of a cycle do not invalidate it.
    """

    def __init__(self) -> None:
        self._values: dict[Scope, dict[Hashable, Any]] = defaultdict(dict)

    def get(self, scope: Scope, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return `make()`, cached."""
        values = self._values[scope]
        if key not in values:
            if scope == NODES and len(values) >= MOST_CACHED:
                del values[next(iter(values))]
            values[key] = make()
        return cast("Value", values[key])

    def forget(self, group: PodGroup) -> None:
        """Forget what depends on the pods of a group."""
        values = self._values
        values.pop(ALL_PODS, None)
        values.pop(("queue", group.queue), None)
        values.pop(("group", group.name), None)
        for pod in group.pods:
            if pod.node is not None:
                values.pop(("node", pod.node), None)

    def undo_step(self, groups: Iterable[PodGroup]) -> Callable[[], None]:
        """Return a function that restores what `forget` of these groups forgets."""
        scopes = {scope for group in groups for scope in _scopes_of(group)}
        return partial(self._values.update, {scope: self._values[scope] for scope in scopes & self._values.keys()})

    def set_aside(self) -> Callable[[], None]:
        """Forget everything; return a function that restores it."""
        known, self._values = self._values, defaultdict(dict)
        return partial(setattr, self, "_values", known)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores all of the present values."""
        known = self._values.copy()

        def restore() -> None:
            self._values = known.copy()

        return restore


def _scopes_of(group: PodGroup) -> list[Scope]:
    nodes = [("node", pod.node) for pod in group.pods if pod.node is not None]
    return [("queue", group.queue), ("group", group.name), ALL_PODS, *nodes]


def add(amounts: dict[int, int], key: int, amount: int) -> None:
    """Add to one of these amounts; zero is left out."""
    if more := amounts.get(key, 0) + amount:
        amounts[key] = more
    else:
        del amounts[key]


def copied(tables: dict[str, Any]) -> dict[str, Any]:
    """The same tables by the same names, copied one by one."""
    found = tables.copy()
    found.update((name, table.copy()) for name, table in tables.items())
    return found
