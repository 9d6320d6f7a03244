"""Admission of the sandbox's API server: defaults, priorities, ResourceQuotas, immutable fields.

A scoped quota (`scopeSelector` on PriorityClass) counts only pods of the classes it names. Ended pods do not count.

A refusal is a `ClusterRefused` (403 or 422 on a real one), a taken name an `ObjectConflict`, a stale version a
`VersionConflict` (both 409): reading again helps with the latter only.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.ports.gateway import ClusterRefused, Kind, Manifest, ObjectConflict, VersionConflict
from clusters.ports.objects import LIMIT_RANGE, NAMESPACE, POD, PRIORITY_CLASS, RESOURCE_QUOTA, kind_of
from clusters.ports.pods import DEFAULT_GRACE, GPU_RESOURCE, is_terminal, requests_of, scaled, stamp
from clusters.sandbox.services.kueue_webhooks import suspend_or_gate
from clusters.sandbox.services.store import ObjectStore
from scheduling.model.resources import Resources, decimal_text

COUNTED: Final = {
    f"requests.{GPU_RESOURCE}": "gpu",
    "requests.cpu": "cpu",
    "requests.memory": "memory",
    "cpu": "cpu",
    "memory": "memory",
}


def charge(store: ObjectStore, pod: Manifest) -> None:
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
    requested, used = requests_of(pod), Resources()
    number = 0
    for each in counted:
        used += requests_of(each)
        number += 1
    over: list[tuple[str, str, str, str]] = []
    for name, text in (quota["spec"].get("hard") or {}).items():
        part = _part(name, str(text), requested, used, number)
        if part is not None:
            over.append((name, *part))
    if over:
        raise ClusterRefused(
            f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
            f"requested: {_list(over, 1)}, used: {_list(over, 2)}, limited: {_list(over, 3)}"
        )


def _part(name: str, text: str, requested: Resources, used: Resources, number: int) -> tuple[str, str, str] | None:
    """(requested, used, limited) when this key is exceeded."""
    if name in {"pods", "count/pods"}:
        hard = scaled(text, 1)
        return ("1", str(number), text) if number + 1 > hard else None
    dimension = COUNTED.get(name)
    if dimension is None:
        return None
    more, now = getattr(requested, dimension), getattr(used, dimension)
    if not more or now + more <= scaled(text, 1 if dimension == "memory" else 1000):
        return None
    return _text(dimension, more), _text(dimension, now), text


def _text(dimension: str, amount: int) -> str:
    return str(amount) if dimension == "memory" else decimal_text(amount)


def _list(over: Iterable[tuple[str, str, str, str]], column: int) -> str:
    return ",".join(f"{row[0]}={row[column]}" for row in over)


BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
LARGEST_PRIORITY: Final = 1_000_000_000
SMALLEST_PRIORITY: Final = -(2**31)
POD_DEFAULTS: Final = {
    "terminationGracePeriodSeconds": DEFAULT_GRACE,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
}
OUR_PREFIX: Final = "rung.dev/"
PREEMPT_LOWER: Final = "PreemptLowerPriority"


def create(store: ObjectStore, manifest: Manifest) -> Manifest:
    """Admit a new object. The manifest is taken over and completed in place."""
    kind = known_kind(manifest)
    meta = manifest["metadata"]
    where = _namespace(store, kind, meta)
    if store.find(kind.key, meta["name"], where):
        raise ObjectConflict(f'{kind.plural} "{meta["name"]}" already exists')
    if kind.key == PRIORITY_CLASS.key:
        _admit_class(manifest)
    elif kind.key == POD.key:
        _admit_pod(store, manifest)
    suspend_or_gate(store, manifest)
    return store.add(manifest)


def update(store: ObjectStore, manifest: Manifest, *, version: str) -> Manifest:
    """Replace the body of a live object that still has the resourceVersion `version`; status and identity stay."""
    kind = known_kind(manifest)
    meta = manifest["metadata"]
    current = store.find(kind.key, meta["name"], meta.get("namespace", "") if kind.namespaced else "")
    if current is None:
        raise ClusterRefused(f'{kind.plural} "{meta["name"]}" not found')
    if current["metadata"]["resourceVersion"] != version:
        raise VersionConflict(
            f'Operation cannot be fulfilled on {kind.plural} "{meta["name"]}": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
    if kind.key == PRIORITY_CLASS.key:
        _refuse_changed_class(manifest, current)
    suspend_or_gate(store, manifest, before=current)
    return store.replace(current, _with_identity(manifest, current))


def delete(store: ObjectStore, manifest: Manifest) -> None:
    """Begin a deletion: a pod on a node gets its grace period, everything else goes at once."""
    if kind_of(manifest).key != POD.key or not _has_grace(manifest):
        store.remove(manifest)
    elif "deletionTimestamp" not in manifest["metadata"]:
        start_leaving(store, manifest)


def start_leaving(store: ObjectStore, pod: Manifest) -> None:
    """Set deletionTimestamp to the end of the grace period, which passes as fast as the sandbox's clock.

    What it grants is what passes until then: a reader takes the one from the other for the moment of the request.
    """
    ends = store.later(pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE))
    pod["metadata"]["deletionGracePeriodSeconds"] = math.ceil((ends - store.now).total_seconds())
    pod["metadata"]["deletionTimestamp"] = stamp(ends)
    store.touch(pod)


def _has_grace(pod: Manifest) -> bool:
    phase = (pod.get("status") or {}).get("phase", "Pending")
    return bool(pod["spec"].get("nodeName")) and phase in {"Pending", "Running"}


def known_kind(manifest: Manifest) -> Kind:
    """The manifest's kind; refused when this cluster does not serve it or it has no name."""
    try:
        kind = kind_of(manifest)
        named = bool(manifest["metadata"]["name"])
    except (KeyError, TypeError) as error:
        raise ClusterRefused(f"no matches for kind {error}") from error
    if not named:
        raise ClusterRefused("metadata.name: Required value: name or generateName is required")
    return kind


def _namespace(store: ObjectStore, kind: Kind, meta: dict[str, Any]) -> str:
    if not kind.namespaced:
        meta.pop("namespace", None)
        return ""
    name = str(meta.get("namespace") or "")
    if not name:
        raise ClusterRefused(f"{kind.plural}: an empty namespace may not be set during creation")
    if store.find(NAMESPACE.key, name) is None:
        raise ClusterRefused(f'namespaces "{name}" not found')
    return name


def _with_identity(manifest: Manifest, current: Manifest) -> Manifest:
    """Keep what the server owns: uid, creation time, deletion, status, and foreign labels and annotations."""
    old, new = current["metadata"], manifest["metadata"]
    for part in ("labels", "annotations"):
        foreign = {key: text for key, text in (old.get(part) or {}).items() if not key.startswith(OUR_PREFIX)}
        new[part] = {**foreign, **(new.get(part) or {})}
    for part in ("uid", "creationTimestamp", "deletionTimestamp", "ownerReferences"):
        if part in old:
            new[part] = old[part]
    if "status" in current:
        manifest["status"] = current["status"]
    return manifest


def _admit_class(manifest: Manifest) -> None:
    name, value = manifest["metadata"]["name"], manifest.get("value", 0)
    if name.startswith("system-"):
        raise ClusterRefused(
            f'PriorityClass.scheduling.k8s.io "{name}" is invalid: metadata.name: Forbidden: priority class names '
            "with 'system-' prefix are reserved for system use only"
        )
    if not isinstance(value, int) or not SMALLEST_PRIORITY <= value <= LARGEST_PRIORITY:
        raise ClusterRefused(
            f'PriorityClass.scheduling.k8s.io "{name}" is invalid: value: Forbidden: maximum allowed value of a user '
            f"defined priority is {LARGEST_PRIORITY}"
        )
    manifest.setdefault("preemptionPolicy", PREEMPT_LOWER)


def _refuse_changed_class(manifest: Manifest, current: Manifest) -> None:
    manifest.setdefault("preemptionPolicy", PREEMPT_LOWER)
    for part in ("value", "preemptionPolicy"):
        if manifest.get(part) != current.get(part):
            name = manifest["metadata"]["name"]
            raise ClusterRefused(f'PriorityClass.scheduling.k8s.io "{name}" is invalid: {part}: field is immutable')


def _admit_pod(store: ObjectStore, pod: Manifest) -> None:
    """Defaults, the priority integer, then the namespace's quotas."""
    spec = pod.setdefault("spec", {})
    for name, value in POD_DEFAULTS.items():
        if spec.get(name) is None:
            spec[name] = value
    _copy_priority(store, pod)
    _default_requests(store, pod)
    charge(store, pod)
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}


def _copy_priority(store: ObjectStore, pod: Manifest) -> None:
    spec, name = pod["spec"], pod["spec"].get("priorityClassName", "")
    if name in BUILT_IN:
        spec |= {"priority": BUILT_IN[name], "preemptionPolicy": PREEMPT_LOWER}
        return
    found = store.find(PRIORITY_CLASS.key, name) if name else _global_default(store)
    if name and found is None:
        raise ClusterRefused(
            f'pods "{pod["metadata"]["name"]}" is forbidden: no PriorityClass with name {name} was found'
        )
    if found is None:
        spec |= {"priority": 0, "preemptionPolicy": PREEMPT_LOWER}
        return
    spec["priorityClassName"] = found["metadata"]["name"]
    spec |= {"priority": found.get("value", 0), "preemptionPolicy": found.get("preemptionPolicy", PREEMPT_LOWER)}


def _global_default(store: ObjectStore) -> Manifest | None:
    """With several, the lowest value counts."""
    defaults = [each for each in store.of(PRIORITY_CLASS.key) if each.get("globalDefault")]
    return min(defaults, key=lambda each: int(each.get("value", 0)), default=None)


def _default_requests(store: ObjectStore, pod: Manifest) -> None:
    """What a LimitRange of the namespace adds to containers that state nothing."""
    namespace = pod["metadata"].get("namespace", "")
    for limit_range in store.of(LIMIT_RANGE.key):
        if limit_range["metadata"].get("namespace") != namespace:
            continue
        for limit in limit_range.get("spec", {}).get("limits", []):
            if limit.get("type") == "Container":
                _fill(pod, limit)


def _fill(pod: Manifest, limit: dict[str, Any]) -> None:
    limits, requests = limit.get("default") or {}, limit.get("defaultRequest") or {}
    for container in pod["spec"].get("containers") or []:
        resources = container.setdefault("resources", {})
        own = resources.get("limits") or {}
        stated = {**own, **(resources.get("requests") or {})}
        resources["limits"] = {**limits, **own}
        resources["requests"] = {**limits, **requests, **stated}
