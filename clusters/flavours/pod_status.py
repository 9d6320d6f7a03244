"""Conditions and events of a pod in Rung's words: the parts every flavour reads alike. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clusters.ports.flavour import WAITS_FOR_VICTIMS, PodStatusReason
from clusters.ports.gateway import Manifest
from portal.kit.security.strict_json import DocumentInvalid, ParseLimits
from portal.kit.security.strict_yaml import documents_from_yaml

SETTINGS: Final = ParseLimits(size=256 * 1024, depth=16, nodes=5_000, documents=1)
"""Bounds of a scheduler's configuration, which is a stranger's text."""

QUEUED: Final = "Queued"
"""Reason of an event about a job that its scheduler holds back in a queue, whether it has pods or not."""
ADMITTED: Final = "Admitted"
"""And about one that it has let go."""
LEFT_OUT: Final = "LeftOut"
"""And about a pod that it holds back and queues no more."""
NOT_READY: Final = "NotReady"
"""And about one that it does not even try, as too few of its pods are there; what it says of its queue goes before."""
PODS_EVICTED: Final = "PodsEvicted"
"""And about one of which it evicted pods at that moment, without naming the preemptor: those that are deleted then."""
NOT_BOUND: Final = "BindingError"
"""Why a pod waits that has its place and could not be bound to it; also of the event that says so."""
PIPELINED: Final = "Pipelined"
"""And about a pod that has its place as soon as the evicted there have left."""
BY_POD: Final = re.compile(r"[Pp]reempted by (?:pod|podgroup) ([0-9a-fA-F-]{8,64})")
EXCEEDED: Final = re.compile(
    r"exceeded quota: (?P<quota>[\w.-]+), requested: (?P<requested>\S+?), "
    r"used: (?P<used>\S+?), limited: (?P<limited>\S+)"
)
STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
NODES: Final = re.compile(r"(?P<fitting>\d{1,9})/(?P<nodes>\d{1,9}) nodes are (?:un)?available")
VOLUME_CLAIM: Final = "volume_claim"
MISSING_CLAIM: Final = re.compile(r'persistentvolumeclaim "(?P<name>[a-z0-9.-]{1,253})" not found')
SHORTFALL: Final = re.compile(r"(?P<count>\d{1,9}) (?P<cause>(?:Insufficient|node\(s\))[^,]*?)(?=,|\.\s|\.?$)")


def condition(pod: Mapping[str, Any], type_: str, *, status: str) -> Mapping[str, Any] | None:
    """The pod's condition of a type with the given status."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == type_ and each.get("status") == status:
            return dict(each)
    return None


def messages(events: Sequence[Manifest], *reasons: str) -> Iterator[str]:
    """Messages of the events with one of the reasons, newest last as given."""
    for event in events:
        if event.get("reason") in reasons:
            yield str(event.get("message", ""))


def disruption_texts(pod: Mapping[str, Any], events: Sequence[Manifest], *reasons: str) -> Iterator[str]:
    """What was said about an eviction by the scheduler: the condition (authoritative) first, then events (hints)."""
    found = condition(pod, "DisruptionTarget", status="True")
    if found and found.get("reason") == "PreemptionByScheduler":
        yield str(found.get("message", ""))
    yield from messages(events, *reasons)


def waiting_reason(pod: Mapping[str, Any]) -> PodStatusReason:
    """Why the pod is not scheduled, with the nodes counted per cause; when it is, why it does not start.

    A pod with a nominated node has evicted others there, and waits for their grace to end.
    """
    found = condition(pod, "PodScheduled", status="False")
    if found is None:
        return starting_reason(pod)
    message = str(found.get("message", ""))
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    return PodStatusReason(WAITS_FOR_VICTIMS if nominated else _reason(found), message, node_numbers(message))


def _reason(found: Mapping[str, Any]) -> str:
    return str(found.get("reason") or "Unschedulable")


def starting_reason(pod: Mapping[str, Any]) -> PodStatusReason:
    """Why a placed pod does not start: its image cannot be pulled, or would run as root. Empty while it just starts."""
    status = pod.get("status") or {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        held = (each.get("state") or {}).get("waiting") or {}
        if held.get("reason") and held["reason"] not in STARTING:
            return PodStatusReason(str(held["reason"])[:64], str(held.get("message") or ""))
    return PodStatusReason()


def node_numbers(message: str) -> dict[str, str]:
    """ "0/16 nodes are available: 16 Insufficient nvidia.com/gpu" as nodes, fitting, and one count per cause.

    And the name of a volume claim that does not exist.
    """
    nodes = NODES.search(message)
    if nodes is None:
        return {}
    first_part = message.partition("preemption:")[0].strip()
    causes = {match["cause"]: match["count"] for match in SHORTFALL.finditer(first_part)}
    claim = MISSING_CLAIM.search(first_part)
    named = {VOLUME_CLAIM: claim["name"]} if claim else {}
    return {"nodes": nodes["nodes"], "fitting": nodes["fitting"], **named, **causes}


def controller_of(manifest: Manifest) -> Mapping[str, Any] | None:
    """Whose object it is: as its first owner says where none controls it."""
    owners = manifest["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), owners[0] if owners else None)


def event_of(
    manifest: Manifest, about: Mapping[str, Any], mark: str, *, source: str, reason: str, message: str, at: Any
) -> Manifest:
    """What an object says, as an event of our own making about another: of the version that it was read from."""
    metadata = manifest["metadata"]
    space = metadata.get("namespace", "")
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": space,
            "uid": f"{metadata['uid'][:36]}.{mark}",
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "involvedObject": {**{key: about.get(key, "") for key in ("kind", "name", "uid")}, "namespace": space},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "reportingComponent": source,
        "lastTimestamp": at,
    }


def config_document(config_map: Manifest | None, key: str) -> Mapping[str, Any] | None:
    """The YAML document under this key of a ConfigMap; None where there is none or it is not a readable mapping."""
    data = (config_map or {}).get("data")
    text = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return None
    try:
        documents = documents_from_yaml(text.encode(), SETTINGS)
    except DocumentInvalid:
        return None
    value = documents[0].value if documents else None
    return value if isinstance(value, Mapping) else None
