"""What rules work on, made once for a snapshot and used again for all that is derived from it.

A working state is changed while a cycle decides, and brought back afterwards, whatever was tried: a preview costs what
it changes, not what the cluster holds. A snapshot that was derived from another one works on that one's state, with its
pod groups exchanged meanwhile. One cycle at a time works on a state; others wait for it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

from scheduling.model.snapshot import PodGroup, Snapshot


class OutOfTime(Exception):
    """The time of whoever asks is over before there is an answer."""


_is_over: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("is_over", default=None)


@contextmanager
def interrupted_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Let searches inside raise OutOfTime once `is_over` says so, or that of a caller around. Here is no clock."""
    outer = _is_over.get()
    token = _is_over.set(is_over if outer is None else lambda: outer() or is_over())
    try:
        yield
    finally:
        _is_over.reset(token)


def check_time() -> None:
    """Raise OutOfTime when it is. Called by every step that searches repeat."""
    is_over = _is_over.get()
    if is_over is not None and is_over():
        raise OutOfTime


class Workspace(Protocol):
    """A working state of a snapshot."""

    def restore(self) -> None:
        """Take back everything since it was made or settled."""
        ...

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """These pod groups leave the cluster, those come into it."""
        ...

    def settle(self) -> None:
        """What it is now is what it is brought back to from now on."""
        ...


Space = TypeVar("Space", bound=Workspace)


class _Shared(Generic[Space]):
    """A state and whose it is: of no snapshot any more once another one has taken it over."""

    def __init__(self, root: Snapshot) -> None:
        self.lock = Lock()
        self.root: Snapshot | None = root
        self.space: Space | None = None


@contextmanager
def workspace(snapshot: Snapshot, make: Callable[[Snapshot], Space]) -> Iterator[Space]:
    """The state that `make` makes of a snapshot. `make` stands for its kind: a function or class, not a lambda."""
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
    """What the snapshot was derived from in the end, and what was changed since, first things first."""
    changes: list[tuple[Iterable[str], Iterable[PodGroup]]] = []
    while snapshot.origin is not None:
        changes.append((snapshot.origin.gone, snapshot.origin.come))
        snapshot = snapshot.origin.base
    return snapshot, changes[::-1]


def successor(snapshot: Snapshot, gone: Iterable[str], come: Iterable[PodGroup], *, now: int | None) -> Snapshot:
    """The same cluster a moment later, with pod groups exchanged. It takes over the states of the one before.

    Who still works with the earlier snapshot can: a state is made of it again.
    """
    groups = tuple(come)
    names = frozenset(name for name in {*gone, *(group.name for group in groups)} if snapshot.group(name))
    new = snapshot.exchanged(names, groups, now=now)
    for make, shared in list(snapshot.workspaces.items()):
        with shared.lock:
            shared.root = new
            if shared.space is not None:
                shared.space.exchange(names, groups)
                shared.space.settle()
        new.workspaces[make] = shared
    snapshot.workspaces.clear()
    for pool, shard in list(snapshot.shards.items()):
        new.shards[pool] = successor(shard, names, [group for group in groups if group.pool == pool], now=now)
    snapshot.shards.clear()
    return new
