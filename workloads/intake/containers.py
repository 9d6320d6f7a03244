"""One container: image, command, environment, ports, probes, resources and mounts."""

from typing import Any, Final

from workloads.intake.environment import env, env_from
from workloads.intake.images import image
from workloads.intake.names import dns_label, port_name
from workloads.intake.resources import resources
from workloads.intake.rules import (
    ABSENT,
    Place,
    Rule,
    boolean,
    choice,
    either,
    forbidden,
    integer,
    listing,
    only,
    table,
    text,
)
from workloads.intake.security import container_security
from workloads.intake.volumes import mount

PORT = integer(1, 65_535)
words: Rule = listing(text(65_536), 500)
_port_or_name = either((int, PORT), (str, port_name))
_own_pod = forbidden("A probe talks to its own pod: leave the host out.", "probe_host")

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
_asking = _probe(terminationGracePeriodSeconds=forbidden("A readiness probe ends nothing."))
_hook = table(
    {**_HANDLERS, "sleep": table({"seconds": integer(0, 3600)}, required=["seconds"])}, one_of=[*_HANDLERS, "sleep"]
)
lifecycle: Rule = table({"preStop": _hook, "postStart": _hook})
port: Rule = table(
    {
        "containerPort": PORT,
        "name": port_name,
        "protocol": choice("TCP", "UDP", "SCTP"),
        "hostPort": forbidden("A host port is the node's."),
        "hostIP": forbidden("A host address is the node's."),
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
    "volumeMounts": listing(mount, 50, unique="mountPath"),
    "volumeDevices": forbidden("Block devices are not offered."),
    "livenessProbe": _restarting,
    "readinessProbe": _asking,
    "startupProbe": _restarting,
    "lifecycle": lifecycle,
    "securityContext": container_security,
    "terminationMessagePath": text(256, r"/[^:]*", "an absolute path"),
    "terminationMessagePolicy": choice("File", "FallbackToLogsOnError"),
    "stdin": boolean,
    "stdinOnce": boolean,
    "tty": boolean,
}
container: Rule = table(FIELDS, required=["name", "image"])
_init_container: Rule = table(
    {**FIELDS, "restartPolicy": only("Always", "A sidecar restarts always; others have no policy.")},
    required=["name", "image"],
)
_OF_SIDECARS: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def init_container(value: Any, place: Place) -> Any:
    """A container that ends before the others begin, or a sidecar: only that one is probed and has hooks."""
    rebuilt = _init_container(value, place)
    if rebuilt is not ABSENT and "restartPolicy" not in rebuilt:
        for name in _OF_SIDECARS:
            if name in rebuilt:
                place.at(name).refuse("of_sidecars", "Only a sidecar (restartPolicy: Always) has this.")
    return rebuilt


def containers(*, named: str = "") -> Rule:
    """The containers of a pod; some kinds look for one of a certain name."""
    every: Rule = listing(container, 20, least=1, unique="name")
    if not named:
        return every

    def check(value: Any, place: Any) -> Any:
        rebuilt = every(value, place)
        if isinstance(rebuilt, list) and not any(each.get("name") == named for each in rebuilt):
            place.refuse("container_name", f"This kind runs the container named {named}: name one so.", (named,))
        return rebuilt

    return check
