"""What rules compute about pods on nodes, kept until other pods are on nodes there.

Evictions and placements of a cycle do not invalidate it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Final, TypeVar, cast

from scheduling.model.snapshot import PodGroup

Value = TypeVar("Value")
MOST_CACHED: Final = 64
Scope = tuple[str, str]
"""`("queue", name)`, `("group", name)`, `("node", name)`, `ALL_PODS` or `NODES`."""
ALL_PODS: Final[Scope] = ("pods", "")
NODES: Final[Scope] = ("nodes", "")


class ScopedCache:
    """Values by scope and key. `NODES` holds regardless of pods."""

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
        for scope in _scopes_of(group):
            self._values.pop(scope, None)

    def undo_step(self, groups: Iterable[PodGroup]) -> Callable[[], None]:
        """Return a function that restores what `forget` of these groups forgets."""
        scopes = {scope for group in groups for scope in _scopes_of(group)}
        return partial(self._values.update, {scope: self._values[scope] for scope in scopes & self._values.keys()})

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores all of the present values."""
        known = self._values.copy()

        def restore() -> None:
            self._values = known.copy()

        return restore


def _scopes_of(group: PodGroup) -> list[Scope]:
    nodes = [("node", pod.node) for pod in group.pods if pod.node is not None]
    return [("queue", group.queue), ("group", group.name), ALL_PODS, *nodes]
