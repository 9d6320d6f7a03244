"""Objects of Rung in a cluster: their kinds, and the labels, annotations and hashes that mark them as Rung's. Pure.

Paths are hard-coded: no discovery for our own kinds. Kinds that tenants may submit:
`clusters.ports.workload_kinds`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import KINDS, kind_for

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
POD = Kind("", "v1", "Pod", "pods")
EVENT = Kind("", "v1", "Event", "events")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges")
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
GANG_WORKLOAD = Kind("scheduling.k8s.io", "v1alpha2", "Workload", "workloads")
GANG_POD_GROUP = Kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")
KAI_QUEUE = Kind("scheduling.run.ai", "v2", "Queue", "queues", namespaced=False)
KAI_POD_GROUP = Kind("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups")
KAI_SHARD = Kind("kai.scheduler", "v1", "SchedulingShard", "schedulingshards", namespaced=False)
KAI_TOPOLOGY = Kind("kai.scheduler", "v1alpha1", "Topology", "topologies", namespaced=False)
KUEUE_PRIORITY = Kind("kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)
KUEUE_FLAVOR = Kind("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors", namespaced=False)
KUEUE_COHORT = Kind("kueue.x-k8s.io", "v1beta2", "Cohort", "cohorts", namespaced=False)
KUEUE_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "ClusterQueue", "clusterqueues", namespaced=False)
KUEUE_LOCAL_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
KUEUE_WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
KUEUE_TOPOLOGY = Kind("kueue.x-k8s.io", "v1beta2", "Topology", "topologies", namespaced=False)
VOLCANO_QUEUE = Kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False)
VOLCANO_POD_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
VOLCANO_HYPER_NODE = Kind("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", namespaced=False)

CORE_KINDS = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    SERVICE,
    CONFIG_MAP,
    RESOURCE_QUOTA,
    LIMIT_RANGE,
    PRIORITY_CLASS,
    GANG_WORKLOAD,
    GANG_POD_GROUP,
    KAI_QUEUE,
    KAI_POD_GROUP,
    KAI_SHARD,
    KAI_TOPOLOGY,
    KUEUE_PRIORITY,
    KUEUE_FLAVOR,
    KUEUE_COHORT,
    KUEUE_QUEUE,
    KUEUE_LOCAL_QUEUE,
    KUEUE_WORKLOAD,
    KUEUE_TOPOLOGY,
    VOLCANO_QUEUE,
    VOLCANO_POD_GROUP,
    VOLCANO_HYPER_NODE,
)
CREATION_ORDER: Final = (
    PRIORITY_CLASS,
    NAMESPACE,
    KUEUE_PRIORITY,
    KUEUE_TOPOLOGY,
    KAI_TOPOLOGY,
    VOLCANO_HYPER_NODE,
    KUEUE_FLAVOR,
    KUEUE_COHORT,
    KAI_QUEUE,
    KUEUE_QUEUE,
    VOLCANO_QUEUE,
    KUEUE_LOCAL_QUEUE,
    LIMIT_RANGE,
    RESOURCE_QUOTA,
)
"""What comes first when objects are created: quotas name PriorityClasses and live in namespaces. All of them small."""

_BY_VERSION = {(kind.api_version, kind.kind): kind for kind in CORE_KINDS}


def kind_of_workload(kind: WorkloadKind, *, api_version: str | None = None) -> Kind:
    """The API kind of a manifest type, in the version given or else the preferred one."""
    version = (api_version or kind.api_version).rpartition("/")[2]
    return Kind(kind.group, version, kind.kind, kind.plural)


WORKLOAD_KINDS: tuple[Kind, ...] = tuple(kind_of_workload(kind) for kind in KINDS)


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """The kind a manifest names. KeyError when it is none of Rung's and none a tenant may submit."""
    named = (str(manifest["apiVersion"]), str(manifest["kind"]))
    if known := _BY_VERSION.get(named):
        return known
    workload = kind_for(*named)
    if workload is None:
        raise KeyError(f"{named[0]} {named[1]}")
    return kind_of_workload(workload, api_version=named[0])


def ref_of(manifest: Mapping[str, Any]) -> ObjectRef:
    """Kind, name and namespace of a manifest. KeyError as in `kind_of`. Asked of every object of a cluster at once."""
    kind = _BY_VERSION.get((manifest["apiVersion"], manifest["kind"])) or kind_of(manifest)
    metadata = manifest["metadata"]
    return ObjectRef(kind, str(metadata["name"]), str(metadata.get("namespace", "")) if kind.namespaced else "")


PARENTS: Final[Mapping[str, str]] = {
    KAI_QUEUE.key: "parentQueue",
    VOLCANO_QUEUE.key: "parent",
    KUEUE_COHORT.key: "parentName",
    KUEUE_QUEUE.key: "cohortName",
}
"""Kinds that hold quota as long as they exist, and the field of their spec that names what they hang below."""


# Maps that are wholly ours: a key that only the observed object has is a difference too.
WHOLE_MAPS: Final = frozenset({"hard", "deserved", "capability"})


OURS: Final = "rung.dev/"  # foreign annotations, such as kubectl's own, say nothing that Rung wants


NOT_CONTENT: Final = frozenset({"metadata", "status", "apiVersion", "kind"})


FINGERPRINT: Final = "fingerprint"  # in the place of what an object says, where only that much of it is kept


SCHEDULING: Final = "scheduling"  # beside it, of a workload's object: its `scheduling_fields`


ANSWERED: Final = "answered"  # beside it: its controller has written a status, whatever that says


def fingerprint_of(manifest: Mapping[str, Any]) -> str:
    """Of labels, our annotations and everything outside metadata and status; leaving is a change, too."""
    metadata = manifest.get("metadata") or {}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith(OURS)}
    says = {key: value for key, value in manifest.items() if key not in NOT_CONTENT}
    whole = [says, metadata.get("labels") or {}, annotations, bool(metadata.get("deletionTimestamp"))]
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


APPLIED_HASH = "rung.dev/applied-hash"  # annotation: hash of what Rung wrote


GENERATION = "rung.dev/generation"  # annotation: the owning row's generation, the fence against late writers


UNHASHED: Final = frozenset({GENERATION, APPLIED_HASH})


def owned(
    name: str,
    *,
    owner: str,
    generation: int,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of an object Rung writes for the row `owner` at its `generation`."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {**(labels or {}), MANAGED_BY: MANAGER, OWNER: owner},
        "annotations": {**(annotations or {}), GENERATION: str(generation)},
    }


def is_managed(manifest: Mapping[str, Any]) -> bool:
    """True when the object carries our managed-by label."""
    return bool(_part(manifest, "labels").get(MANAGED_BY) == MANAGER)


def owner_of(manifest: Mapping[str, Any]) -> str:
    """The owner label, empty when there is none."""
    return str(_part(manifest, "labels").get(OWNER, ""))


def generation_of(manifest: Mapping[str, Any]) -> int:
    """The generation annotation; 0 when it is absent or was mangled by hand."""
    text = str(_part(manifest, "annotations").get(GENERATION, ""))
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def hash_of(manifest: Mapping[str, Any]) -> str:
    """The applied-hash annotation, empty when there is none."""
    return str(_part(manifest, "annotations").get(APPLIED_HASH, ""))


def stamped(manifest: Manifest) -> Manifest:
    """The manifest with its applied-hash, its other parts shared with the one given: change neither in place.

    The hash leaves the generation out: a newer row that wants the same writes nothing.
    """
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    plain = {key: text for key, text in annotations.items() if key not in UNHASHED}
    content = {**manifest, "metadata": {**metadata, "annotations": plain}}
    digest = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    return {**manifest, "metadata": {**metadata, "annotations": {**annotations, APPLIED_HASH: digest}}}


def _part(manifest: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    metadata = manifest.get("metadata")
    found = metadata.get(part) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


MANAGER = "rung"


MANAGED_BY = "app.kubernetes.io/managed-by"


OWNER = "rung.dev/owner"  # label: "<kind>.<id>" of the owning row, such as workload.4f1c…
