"""Render a workload's object with its effective values, its Pod Security and the Service of an inference. Pure.

Intake refuses what contradicts (a privileged container, an added capability), so filling in is enough. `restricted`
wants runAsNonRoot, a seccomp profile, no privilege escalation and every capability dropped. `baseline` forbids only
what intake refuses already, so that images which start as root run: there only the seccomp profile is written. No pod
gets a token of the cluster either way. Source: Pod Security Standards 1.36.

Only of Rung's own types: who submits a Deployment as a manifest asked for a Deployment and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.objects import HOSTNAME, PLACEMENT, POOL
from clusters.ports.flavour import JobSpec, PoolSpec
from clusters.ports.gateway import Manifest
from clusters.ports.objects import GENERATION, MANAGED_BY, MANAGER, OWNER, SERVICE, owned
from clusters.ports.pod_templates import FoundPart, TemplateShape, WorkloadKind, parts_in
from clusters.ports.pods import PREEMPTIBILITY_LABEL
from clusters.ports.workload_kinds import kind_for

BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (RESTRICTED, BASELINE)
ALL: Final = "ALL"
TOKEN: Final = "automountServiceAccountToken"  # noqa: S105  # the name of a field
# Members of a pod spec that hold containers, or are one: KServe writes its model beside the others.
CONTAINERS: Final = ("containers", "initContainers", "steps")
LONE_CONTAINERS: Final = ("model", "mainContainer", "container", "script")


def harden_pod(spec: dict[str, Any], level: str) -> None:
    """A pod spec and every container in it, in place."""
    harden_context(spec, level)
    spec.setdefault(TOKEN, False)
    harden_containers(spec, level)


def harden_context(owner: dict[str, Any], level: str) -> None:
    """The securityContext of a pod, or of the template for all pods of an object."""
    context = owner.setdefault("securityContext", {})
    context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if level == RESTRICTED:
        context.setdefault("runAsNonRoot", True)


def harden_containers(part: dict[str, Any], level: str, *, alone: bool = False) -> None:
    """Every container below; `alone`: there is no securityContext of the pod, so it sets everything itself."""
    for member in CONTAINERS:
        for each in part.get(member) or []:
            harden_container(each, level, alone=alone)
    for member in LONE_CONTAINERS:
        if isinstance(part.get(member), Mapping):
            harden_container(part[member], level, alone=alone)


def harden_container(container: dict[str, Any], level: str, *, alone: bool = False) -> None:
    """A container drops every capability and cannot gain rights, where the level wants that."""
    if alone:
        harden_context(container, level)
    if level != RESTRICTED:
        return
    context = container.setdefault("securityContext", {})
    context.setdefault("allowPrivilegeEscalation", False)
    capabilities = context.setdefault("capabilities", {})
    if ALL not in capabilities.get("drop", []):
        capabilities["drop"] = [ALL]


ROLE: Final = "rung.dev/role"
MIN_MEMBER: Final = "rung.dev/min-member"
PRIORITY_LABEL: Final = "priorityClassName"
REVISION: Final = "revision"
# In a tenant's body any of these would speak for another owner, queue, pool or policy.
RESERVED: Final = (
    OWNER,
    GENERATION,
    MANAGED_BY,
    ROLE,
    MIN_MEMBER,
    POOL,
    "rung.dev/applied-hash",
    "rung.dev/pods-hash",
    "kai.scheduler/queue",
    "kai.scheduler/node-pool",
    "kai.scheduler/topology",
    "kueue.x-k8s.io/",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "scheduling.k8s.io/group-name",
    "pod-security.kubernetes.io/",
)


@dataclass(frozen=True, slots=True)
class _Marks:
    """What is written at the object and wherever it describes pods."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    scheduler: str


def render_job(
    job: JobSpec,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "",
) -> list[Manifest]:
    """The workload's one object; nothing when it is suspended and its kind cannot be.

    1. take the rebuilt body, name it, make it ours
    2. write priority, labels, annotations, node selector, scheduler and what Pod Security demands at every place that
       describes pods
    3. suspend or resume it where the kind knows how
    """
    body: Manifest = _copied(job.manifest)
    kind = kind_for(str(body["apiVersion"]), str(body["kind"]))
    if kind is None or (job.suspended and kind.suspend is None):
        return []
    marks = _Marks({**_effective_labels(job), **labels}, {**_gang(job), **(annotations or {})}, scheduler)
    body["metadata"] = _metadata(body.get("metadata"), job, marks)
    body.pop("status", None)
    for part in parts_in(body, kind):
        _dress(part, job, marks)
        _harden(part, job)
    for pointer in kind.priority:
        _set(body, pointer, job.priority_class, only_if_there=True)
    _dress_elsewhere(body, job, kind, marks)
    _dress_jobs(body, marks.labels)
    if kind.suspend:
        _set(body, kind.suspend, job.suspended)
    return [body]


def _copied(value: Any) -> Any:
    """A copy of what JSON can say: `copy.deepcopy`, which looks for cycles and classes, takes most of a rendering."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def node_selector(pool: PoolSpec | None) -> dict[str, str]:
    """The labels that make the pool; nothing when any node will do."""
    return {pool.label_key: pool.label_value} if pool else {}


def _effective_labels(job: JobSpec) -> dict[str, str]:
    """Labels are rewritten to the effective values: in a manifest they were a request, never an authority."""
    return {
        MANAGED_BY: MANAGER,
        OWNER: f"workload.{job.id}",
        PRIORITY_LABEL: job.priority_class,
        PREEMPTIBILITY_LABEL: job.preemptibility,
        **({POOL: job.pool.name} if job.pool else {}),
    }


def _metadata(given: Mapping[str, Any] | None, job: JobSpec, marks: _Marks) -> dict[str, Any]:
    metadata = given or {}
    return {
        "name": job.name,
        "namespace": job.namespace,
        "labels": {**_harmless(metadata.get("labels")), **marks.labels},
        "annotations": {**_harmless(metadata.get("annotations")), **marks.annotations, GENERATION: str(job.generation)},
    }


def _gang(job: JobSpec) -> dict[str, str]:
    return {MIN_MEMBER: str(job.min_member)}


def _harmless(given: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (given or {}).items() if not key.startswith(RESERVED)}


def _dress(part: FoundPart, job: JobSpec, marks: _Marks) -> None:
    """Write the effective values at one place that describes pods.

    Never the generation: a template that changes with each stop and resume is refused (Job) or restarts pods.
    """
    target: Any = part.part
    role = {ROLE: part.role}
    match part.shape:
        case TemplateShape.TEMPLATE if (
            not part.pointer
        ):  # a bare Pod is its own template: its metadata is written already
            target["metadata"]["labels"] |= role
            _dress_pod(target.setdefault("spec", {}), job, marks.scheduler)
        case TemplateShape.TEMPLATE:
            _mark(target.setdefault("metadata", {}), marks, role)
            _dress_pod(target.setdefault("spec", {}), job, marks.scheduler)
        case TemplateShape.POD:
            _mark(target, marks, role)
            _dress_pod(target, job, marks.scheduler)
        case TemplateShape.MACHINE:
            _dress_pod(target, job, marks.scheduler)
        case _:
            pass  # no pod fields here; the owner's labels and `_dress_elsewhere` carry the values


def _harden(found: FoundPart, job: JobSpec) -> None:
    """Pod Security at one place. What the operator of a kind adds beside it is the operator's to secure."""
    part: Any = found.part
    match found.shape:
        case TemplateShape.TEMPLATE if found.role == REVISION:  # Knative takes no securityContext of a pod
            harden_containers(part["spec"], job.pod_security, alone=True)
            part["spec"].setdefault(TOKEN, False)
        case TemplateShape.TEMPLATE:
            harden_pod(part["spec"], job.pod_security)
        case TemplateShape.POD:
            harden_pod(part, job.pod_security)
        case TemplateShape.STEPS | TemplateShape.STEP:
            harden_containers(part, job.pod_security)
        case _:
            pass  # machines and operators' own pods have no such fields; `_dress_elsewhere` writes where there are some


def _mark(metadata: dict[str, Any], marks: _Marks, role: Mapping[str, str]) -> None:
    metadata["labels"] = {**_harmless(metadata.get("labels")), **marks.labels, **role}
    metadata["annotations"] = {**_harmless(metadata.get("annotations")), **marks.annotations}


def _dress_pod(spec: dict[str, Any], job: JobSpec, scheduler: str, *, priority: str = "priorityClassName") -> None:
    spec[priority] = job.priority_class
    if scheduler:
        spec["schedulerName"] = scheduler
    if selector := node_selector(job.pool):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **selector}
    if affinity := own_affinity(job):
        spec["affinity"] = affinity


def own_affinity(job: JobSpec) -> dict[str, Any]:
    """The wish for its own pods on few nodes or on many; a wish, so that it keeps none of them from starting."""
    placement = ((job.manifest.get("metadata") or {}).get("annotations") or {}).get(PLACEMENT)
    if placement is None:
        return {}
    own = {"labelSelector": {"matchLabels": {OWNER: f"workload.{job.id}"}}, "topologyKey": HOSTNAME}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": own}]}
    return {"podAffinity" if placement == "binpack" else "podAntiAffinity": wish}


def _workflow(body: dict[str, Any], job: JobSpec, marks: _Marks) -> None:
    spec = body["spec"]
    spec = spec["workflow"]["spec"] if body["kind"] == "ScheduledWorkflow" else spec
    _dress_pod(spec, job, marks.scheduler, priority="podPriorityClassName")
    harden_context(spec, job.pod_security)  # its executor needs the token, so that is left as the cluster has it
    _mark(spec.setdefault("podMetadata", {}), marks, {})


def _tekton(body: dict[str, Any], job: JobSpec, marks: _Marks) -> None:
    spec = body["spec"]
    parent = spec if body["kind"] == "TaskRun" else spec.setdefault("taskRunTemplate", {})
    template = parent.setdefault("podTemplate", {})
    _dress_pod(template, job, marks.scheduler)
    harden_context(template, job.pod_security)
    template.setdefault(TOKEN, False)


def _dynamo(body: dict[str, Any], job: JobSpec, marks: _Marks) -> None:
    for service in body["spec"].get("services", {}).values():
        _mark(service, marks, {})
        pod = service.setdefault("extraPodSpec", {})
        _dress_pod(pod, job, marks.scheduler)
        harden_pod(pod, job.pod_security)


def _devworkspace(body: dict[str, Any], job: JobSpec, marks: _Marks) -> None:
    attributes = body["spec"]["template"].setdefault("attributes", {})
    overrides = attributes.setdefault("pod-overrides", {})
    _mark(overrides.setdefault("metadata", {}), marks, {})
    pod = overrides.setdefault("spec", {})
    _dress_pod(pod, job, marks.scheduler)
    harden_context(pod, job.pod_security)
    pod.setdefault(TOKEN, False)
    for component in body["spec"]["template"].get("components", []):
        harden_container(_overrides(component), job.pod_security)


def _overrides(component: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = component.setdefault("attributes", {})
    overrides: dict[str, Any] = attributes.setdefault("container-overrides", {})
    return overrides


def _nim(body: dict[str, Any], job: JobSpec, _marks: _Marks) -> None:
    if selector := node_selector(job.pool):
        spec = body["spec"]
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **selector}


_ELSEWHERE: Final[Mapping[str, Callable[[dict[str, Any], JobSpec, _Marks], None]]] = {
    "Workflow": _workflow,
    "ScheduledWorkflow": _workflow,
    "TaskRun": _tekton,
    "PipelineRun": _tekton,
    "DynamoGraphDeployment": _dynamo,
    "DevWorkspace": _devworkspace,
    "NIMServices": _nim,
    "NIMCache": _nim,
}


def _dress_elsewhere(body: dict[str, Any], job: JobSpec, kind: WorkloadKind, marks: _Marks) -> None:
    """Kinds whose pod fields stand apart from their containers."""
    if writer := _ELSEWHERE.get(kind.name):
        writer(body, job, marks)


def _dress_jobs(body: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Jobs that a controller makes below the object are known as the workload's too: their events are its events."""
    spec = body["spec"]
    templates = [each["template"] for each in spec.get("replicatedJobs", [])] if body["kind"] == "JobSet" else []
    if body["kind"] == "CronJob":
        templates = [spec["jobTemplate"]]
    for template in templates:
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**_harmless(metadata.get("labels")), **labels}


def _set(body: dict[str, Any], pointer: str, value: object, *, only_if_there: bool = False) -> None:
    """Write at a JSON pointer; with `only_if_there` a section that the body leaves out stays out."""
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    node: Any = body
    for token in tokens[:-1]:
        if token not in node and only_if_there:
            return
        node = node.setdefault(token, {})
    node[tokens[-1]] = value


SERVED: Final = frozenset({"Inference", "NIMInference", "HuggingFaceInference"})
PREFIX: Final = "s-"
"""Before a name that begins with a digit: the name of a Service begins with a letter."""


def service_for(job: JobSpec) -> Manifest | None:
    """A ClusterIP Service for all of its pods; None where it is no inference or names no port."""
    ports = _ports(job)
    if job.type_name not in SERVED or not ports:
        return None
    owner = f"workload.{job.id}"
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": owned(service_name(job), owner=owner, generation=job.generation, namespace=job.namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": {OWNER: owner},
            "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"} for port in ports],
        },
    }


def service_name(job: JobSpec) -> str:
    """The object's own name, as far as a Service may have it."""
    return job.name if job.name[0].isalpha() else f"{PREFIX}{job.name}"


def _ports(job: JobSpec) -> list[int]:
    """The first port of its first container: what the form asks for."""
    template = (job.manifest.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or [{}]
    return [int(each["containerPort"]) for each in (containers[0].get("ports") or [])[:1]]
