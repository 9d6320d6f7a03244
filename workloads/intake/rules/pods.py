"""Pod specs and their containers: the one allowlist that every kind with pods goes through."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from portal.kit.security.strict_json import visible
from workloads.dictionary.rules.resolution import SYSTEM_PREFIX
from workloads.intake.rules.environment import (
    container_security,
    env,
    env_from,
    mount_path,
    mount_rule,
    pod_security,
    secret,
    volumes,
)
from workloads.intake.rules.scalars import (
    FRACTION,
    GPU,
    POD_ANNOTATIONS,
    annotations,
    dns_label,
    image,
    label_value,
    labels,
    port_name,
    resources,
)
from workloads.intake.rules.values import (
    ABSENT,
    Location,
    Rule,
    boolean,
    choice,
    either,
    forbidden,
    integer,
    listing,
    mapping,
    only,
    table,
    text,
)

PORT = integer(1, 65_535)
words: Rule = listing(text(65_536), 500)
_port_or_name = either((int, PORT), (str, port_name))
_own_pod = forbidden("Probes always use the pod's address. Remove host.", "probe_host")

_HANDLERS: Final[dict[str, Rule]] = {
    "exec": table({"command": words}, required=["command"]),
    "httpGet": table(
        {
            "path": text(1024),
            "port": _port_or_name,
            "scheme": choice("HTTP", "HTTPS"),
            "httpHeaders": listing(
                table(
                    {"name": text(256, r"[-A-Za-z0-9]+", "a header's name"), "value": text(1024)},
                    required=["name", "value"],
                ),
                20,
            ),
            "host": _own_pod,
        },
        required=["port"],
    ),
    "tcpSocket": table({"port": _port_or_name, "host": _own_pod}, required=["port"]),
}
_GRPC: Final = table({"port": PORT, "service": text(256)}, required=["port"])
_TIMES: Final = {
    "initialDelaySeconds": integer(),
    "periodSeconds": integer(1),
    "timeoutSeconds": integer(1),
    "successThreshold": integer(1),
    "failureThreshold": integer(1),
    "terminationGracePeriodSeconds": integer(1),
}


def _probe(**narrower: Rule) -> Rule:
    return table({**_HANDLERS, "grpc": _GRPC, **_TIMES, **narrower}, one_of=[*_HANDLERS, "grpc"])


_restarting = _probe(successThreshold=integer(1, 1))  # one success is enough to let a container live
_asking = _probe(terminationGracePeriodSeconds=forbidden("Not supported for readiness probes."))
_hook = table(
    {**_HANDLERS, "sleep": table({"seconds": integer(0, 3600)}, required=["seconds"])}, one_of=[*_HANDLERS, "sleep"]
)
lifecycle: Rule = table({"preStop": _hook, "postStart": _hook})
port: Rule = table(
    {
        "containerPort": PORT,
        "name": port_name,
        "protocol": choice("TCP", "UDP", "SCTP"),
        "hostPort": forbidden("Host ports are not allowed."),
        "hostIP": forbidden("Host addresses are not allowed."),
    },
    required=["containerPort"],
)
FIELDS: Final[dict[str, Rule]] = {
    "name": dns_label,
    "image": image,
    "imagePullPolicy": choice("Always", "IfNotPresent", "Never"),
    "command": words,
    "args": words,
    "workingDir": text(1024),
    "env": env,
    "envFrom": env_from,
    "ports": listing(port, 50),
    "resources": resources,
    "volumeMounts": listing(mount_rule, 50, unique="mountPath"),
    "volumeDevices": forbidden("Block devices are not supported."),
    "livenessProbe": _restarting,
    "readinessProbe": _asking,
    "startupProbe": _restarting,
    "lifecycle": lifecycle,
    "securityContext": container_security,
    "terminationMessagePath": mount_path,
    "terminationMessagePolicy": choice("File", "FallbackToLogsOnError"),
    "stdin": boolean,
    "stdinOnce": boolean,
    "tty": boolean,
}
container: Rule = table(FIELDS, required=["name", "image"])
_init_container: Rule = table(
    {**FIELDS, "restartPolicy": only("Always", "Must be Always, for sidecars only.")},
    required=["name", "image"],
)
_OF_SIDECARS: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def init_container(value: Any, place: Location) -> Any:
    """A container that ends before the others begin, or a sidecar: only that one is probed and has hooks."""
    rebuilt = _init_container(value, place)
    if rebuilt is not ABSENT and "restartPolicy" not in rebuilt:
        for name in _OF_SIDECARS:
            if name in rebuilt:
                place.at(name).refuse("of_sidecars", "Allowed only for sidecars (restartPolicy: Always).")
    return rebuilt


def containers(*, named: str = "") -> Rule:
    """The containers of a pod; some kinds look for one of a certain name."""
    every: Rule = listing(container, 20, least=1, unique="name")
    if not named:
        return every

    def check(value: Any, place: Any) -> Any:
        rebuilt = every(value, place)
        if isinstance(rebuilt, list) and not any(each.get("name") == named for each in rebuilt):
            place.refuse("container_name", f"One container must be named {named}.", (named,))
        return rebuilt

    return check


NODE_LABELS: Final = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.family",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.count",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
TOLERATIONS: Final = ("nvidia.com/gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SPREAD_KEYS: Final = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
LONGEST_GRACE: Final = 3600


_priority_name: Rule = text(253, r"[A-Za-z0-9][-.A-Za-z0-9]*", "the name of a priority", code="priority_unknown")


def priority_class(value: Any, place: Location) -> Any:
    """The name of a priority. Kept while reading; the spec takes it out as a request. System classes are refused."""
    name, known = _priority_name(value, place), place.scope.priorities
    if name is ABSENT:
        return ABSENT
    if name.startswith(SYSTEM_PREFIX):
        message = f"{visible(name)} is reserved by Kubernetes."
        return place.refuse("priority_unknown", message, known.names if known else ())
    if known and not known.knows(name):
        return place.refuse("priority_unknown", known.unknown(name), known.names)
    return name


def pod_priority_class(value: Any, place: Location) -> Any:
    """The same in a pod template. A workload has one priority, so all of its templates name one entry."""
    name, known, report = priority_class(value, place), place.scope.priorities, place.report
    if name is ABSENT:
        return ABSENT
    first = report.pod_priority = report.pod_priority or name
    if not (known.same(name, first) if known else name == first):
        message = f"The pod templates name two priorities, {first} and {name}. Name one."
        return place.refuse("priorities_differ", message, known.names if known else ())
    return name


def _node_label(key: Any, place: Location) -> Any:
    allowed = (*NODE_LABELS, *place.scope.node_selector_keys)
    if key in allowed:
        return key
    message = f"The node label {visible(key)} is not allowed. Choose a node pool instead."
    return place.refuse("node_label_not_allowed", message, allowed)


_TOLERATION: Rule = table(
    {
        "key": text(316),
        "operator": choice("Equal", "Exists"),
        "value": label_value,
        "effect": choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
        "tolerationSeconds": integer(0),
    }
)


def toleration(value: Any, place: Location) -> Any:
    """A toleration of a GPU or granted taint; one without a key would tolerate every node."""
    rebuilt = _TOLERATION(value, place)
    if rebuilt is ABSENT:
        return rebuilt
    allowed = (*TOLERATIONS, *place.scope.toleration_keys)
    key = rebuilt.get("key", "")
    if key not in allowed:
        return place.at("key").refuse(
            "toleration_not_allowed", f"Tolerating the taint {visible(key)!r} is not allowed.", allowed
        )
    if rebuilt.get("operator") == "Exists" and rebuilt.get("value"):
        place.at("value").refuse("bad_value", "Exists takes no value. Remove it, or use operator: Equal.")
    if "tolerationSeconds" in rebuilt and rebuilt.get("effect") != "NoExecute":
        place.at("effect").refuse("bad_value", "tolerationSeconds requires effect: NoExecute.", ("NoExecute",))
    return rebuilt


match_labels: Rule = table({"matchLabels": labels}, required=["matchLabels"])
_SPREAD: Rule = table(
    {
        "maxSkew": integer(1, 1000),
        "topologyKey": choice(*SPREAD_KEYS),
        "whenUnsatisfiable": choice("DoNotSchedule", "ScheduleAnyway"),
        "labelSelector": match_labels,
    },
    required=["maxSkew", "topologyKey", "whenUnsatisfiable"],
)

PLACED: Final[dict[str, Rule]] = {
    "nodeSelector": mapping(_node_label, label_value, 20),
    "tolerations": listing(toleration, 20),
    "topologySpreadConstraints": listing(_SPREAD, 10),
    "affinity": forbidden("Affinity is not supported. Use nodeSelector, topologySpreadConstraints or a node pool."),
    "nodeName": forbidden("Nodes cannot be selected by name."),
    "schedulerName": forbidden("Rung sets the scheduler."),
    "runtimeClassName": forbidden("The runtime class cannot be set."),
    "priority": forbidden("Numeric priorities are not supported. Use the priority field.", "priority_number"),
    "preemptionPolicy": forbidden("Set by the PriorityClass.", "preemption_policy"),
    "priorityClassName": pod_priority_class,
}
HOST: Final[dict[str, Rule]] = {
    "hostNetwork": only(allowed=False, why="The host network is not allowed."),
    "hostPID": only(allowed=False, why="The host PID namespace is not allowed."),
    "hostIPC": only(allowed=False, why="Host IPC is not allowed."),
    "hostUsers": only(allowed=False, why="Host users are not allowed."),
    "shareProcessNamespace": only(allowed=False, why="Process sharing is not allowed."),
    "hostAliases": forbidden("Custom name resolution is not supported."),
    "dnsConfig": forbidden("Custom name resolution is not supported."),
    "dnsPolicy": only("ClusterFirst", "Custom name resolution is not supported."),
    "serviceAccountName": only("default", "Workloads use the project's default service account.", "service_account"),
    "serviceAccount": only("default", "Workloads use the project's default service account.", "service_account"),
    "automountServiceAccountToken": only(allowed=False, why="Service account tokens are not mounted."),
    "ephemeralContainers": forbidden("Debug containers cannot be submitted."),
}
POD: Final[dict[str, Rule]] = {
    **PLACED,
    **HOST,
    "containers": containers(),
    "initContainers": listing(init_container, 20, unique="name"),
    "volumes": volumes,
    "securityContext": pod_security,
    "imagePullSecrets": listing(table({"name": secret}, required=["name"]), 10),
    "restartPolicy": choice("Always", "OnFailure", "Never"),
    "terminationGracePeriodSeconds": integer(0, LONGEST_GRACE),
    "activeDeadlineSeconds": integer(1),
    "enableServiceLinks": boolean,
    "hostname": dns_label,
    "subdomain": dns_label,
    "setHostnameAsFQDN": boolean,
}


def pod_spec(
    *,
    extra: Mapping[str, Rule] | None = None,
    named: str = "",
    restart: tuple[str, ...] = (),
    required: Iterable[str] = ("containers",),
    claims_elsewhere: bool = False,
) -> Rule:
    """A pod spec; `named` is the container the kind looks for, `restart` the policies it takes.

    Kubernetes assumes Always, so a kind that does not accept it needs another. `claims_elsewhere`: the owner
    declares volumes too, so a mount may name one that is not in the pod spec.
    """
    fields = {**POD, **(extra or {})}
    if named:
        fields["containers"] = containers(named=named)
    if restart:
        fields["restartPolicy"] = choice(*restart)
    must_say = ["restartPolicy"] if restart and "Always" not in restart else []
    plain: Rule = table(fields, required=[*required, *must_say])

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            _check_sleeps(rebuilt, place)
            if not claims_elsewhere:
                check_mounts(rebuilt, place)
        return rebuilt

    return check


def _check_sleeps(spec: Mapping[str, Any], place: Location) -> None:
    """A hook that sleeps longer than the grace period would never wake."""
    grace = spec.get("terminationGracePeriodSeconds", 30)
    for group in ("containers", "initContainers"):
        for index, each in enumerate(spec.get(group, [])):
            for name, hook in each.get("lifecycle", {}).items():
                if hook.get("sleep", {}).get("seconds", 0) > grace:
                    where = place.at(group).at(index).at("lifecycle").at(name).at("sleep").at("seconds")
                    where.refuse("out_of_range", f"A hook can sleep at most for the grace period of {grace} s.")


def check_mounts(spec: Mapping[str, Any], place: Location) -> None:
    """Every mount names a volume of its own pod."""
    known = tuple(each["name"] for each in spec.get("volumes", []) if "name" in each)
    for group in ("containers", "initContainers"):
        for index, each in enumerate(spec.get(group, [])):
            for number, mount in enumerate(each.get("volumeMounts", [])):
                name = mount.get("name")
                if name is not None and name not in known:
                    where = place.at(group).at(index).at("volumeMounts").at(number).at("name")
                    where.refuse("volume_missing", f"This pod has no volume {visible(name)!r}.", known)


pod_metadata: Rule = table({"labels": labels, "annotations": annotations(POD_ANNOTATIONS), "name": dns_label})


def template(spec: Rule, *, metadata: Rule = pod_metadata) -> Rule:
    """A pod template around a pod spec."""
    return share_of_gpu(table({"metadata": metadata, "spec": spec}, required=["spec"]))


def share_of_gpu(plain: Rule) -> Rule:
    """A pod's share of a GPU is in an annotation, and then no container asks for whole ones."""

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT and FRACTION in rebuilt.get("metadata", {}).get("annotations", {}):
            spec = rebuilt.get("spec", {})
            if any(_whole_gpus(each) for each in (*spec.get("containers", []), *spec.get("initContainers", []))):
                where = place.at("metadata").at("annotations").at(FRACTION)
                where.refuse("gpu_both_ways", f"Request a GPU fraction or {GPU}, not both.")
        return rebuilt

    return check


def _whole_gpus(container: Mapping[str, Any]) -> bool:
    return any(name.startswith("nvidia.com/") for name in container.get("resources", {}).get("limits", {}))
