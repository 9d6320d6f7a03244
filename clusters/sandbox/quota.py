"""ResourceQuotas of a namespace, enforced when a pod is created, as a kube-apiserver does.

A scoped quota (`scopeSelector` on PriorityClass) counts only pods of the classes it names. Ended pods do not count.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.errors import ClusterRefused
from clusters.kinds_core import POD, RESOURCE_QUOTA
from clusters.pods import GPU_RESOURCE, is_terminal, requests_of, scaled
from clusters.ports import Manifest
from clusters.sandbox.store import Store
from scheduling.resources import Resources, decimal_text

COUNTED: Final = {
    f"requests.{GPU_RESOURCE}": "gpu",
    "requests.cpu": "cpu",
    "requests.memory": "memory",
    "cpu": "cpu",
    "memory": "memory",
}


def charge(store: Store, pod: Manifest) -> None:
    """Raise `ClusterRefused` when a quota of the pod's namespace has no room for it."""
    namespace = pod["metadata"].get("namespace", "")
    quotas = [each for each in store.of(RESOURCE_QUOTA.key) if each["metadata"].get("namespace") == namespace]
    if not quotas:
        return
    alive = [
        each for each in store.of(POD.key) if each["metadata"].get("namespace") == namespace and not is_terminal(each)
    ]
    for quota in quotas:
        if _covers(quota, pod):
            _refuse_beyond(quota, pod, [each for each in alive if _covers(quota, each)])


def _covers(quota: Manifest, pod: Manifest) -> bool:
    selectors = (quota["spec"].get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_selects(each, pod["spec"].get("priorityClassName", "")) for each in selectors)


def _selects(expression: Mapping[str, Any], name: str) -> bool:
    if expression.get("scopeName") != "PriorityClass":
        return False
    values = expression.get("values") or []
    return {
        "In": name in values,
        "NotIn": name not in values,
        "Exists": bool(name),
        "DoesNotExist": not name,
    }.get(str(expression.get("operator")), False)


def _refuse_beyond(quota: Manifest, pod: Manifest, counted: Iterable[Manifest]) -> None:
    asked, used = requests_of(pod), Resources()
    number = 0
    for each in counted:
        used += requests_of(each)
        number += 1
    over: list[tuple[str, str, str, str]] = []
    for name, text in (quota["spec"].get("hard") or {}).items():
        part = _part(name, str(text), asked, used, number)
        if part is not None:
            over.append((name, *part))
    if over:
        raise ClusterRefused(
            f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
            f"requested: {_list(over, 1)}, used: {_list(over, 2)}, limited: {_list(over, 3)}"
        )


def _part(name: str, text: str, asked: Resources, used: Resources, number: int) -> tuple[str, str, str] | None:
    """(requested, used, limited) when this key is exceeded."""
    if name in {"pods", "count/pods"}:
        hard = scaled(text, 1)
        return ("1", str(number), text) if number + 1 > hard else None
    dimension = COUNTED.get(name)
    if dimension is None:
        return None
    more, now = getattr(asked, dimension), getattr(used, dimension)
    if not more or now + more <= scaled(text, 1 if dimension == "memory" else 1000):
        return None
    return _text(dimension, more), _text(dimension, now), text


def _text(dimension: str, amount: int) -> str:
    return str(amount) if dimension == "memory" else decimal_text(amount)


def _list(over: Iterable[tuple[str, str, str, str]], column: int) -> str:
    return ",".join(f"{row[0]}={row[column]}" for row in over)
