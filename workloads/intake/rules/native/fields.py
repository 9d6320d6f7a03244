"""The one table of native fields: for each kind what it takes, how it is checked, and what becomes of it.

Source of names, bounds and kinds: the request models of Run:ai's client 1.224.0. Three standings:

- used: it decides something on the cluster or in Rung
- kept: harmless without Rung's help, so it is stored and answered as it was sent, and has no other effect
- refused: it asks for something that would silently not happen; the message says what to do instead. An empty or
  default value passes, since clients send those without being asked
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from workloads.intake.rules.environment import mount_path, secret
from workloads.intake.rules.kinds.core import MOST_COMPLETIONS
from workloads.intake.rules.manifests import category, preemptibility
from workloads.intake.rules.native import parts
from workloads.intake.rules.native.parts import PORT, WORD, nothing, words
from workloads.intake.rules.native.storage import compute, security, storage
from workloads.intake.rules.pods import LONGEST_GRACE, priority_class
from workloads.intake.rules.scalars import dns_name, image
from workloads.intake.rules.values import LARGEST, Location, Rule, boolean, choice, integer, listing, only, table, text

FRAMEWORKS: Final = ("MPI", "PyTorch", "TF", "XGBoost", "JAX")
MOST: Final = 1000
_anything: Rule = integer(-LARGEST)
_users: Rule = listing(text(320), 1000)
_STEADY: Final = "Autoscaling is not supported. Set the same number as minReplicas."


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a spec: its rule, what becomes of it, and why in words."""

    rule: Rule
    support: Literal["used", "kept", "refused"]
    note: str = ""


Fields = Mapping[str, Field]


def _used(rule: Rule, note: str = "") -> Field:
    return Field(rule, "used", note)


def _stored(rule: Rule, note: str) -> Field:
    return Field(rule, "kept", note)


def _unsupported(note: str) -> Field:
    return Field(nothing(note), "refused", note)


def object_rule(fields: Fields) -> Rule:
    """The rule of a spec with these fields."""
    return table({name: field.rule for name, field in fields.items()})


WHOLE: Final[Fields] = {
    "priorityClass": _used(priority_class, "Priority name. Overrides labels and the type's default."),
    "preemptibility": _used(preemptibility, "Overrides labels, the type's default and the default by priority."),
    "category": _used(category, "Classifies it in lists and figures; limits go by the category of the type."),
    "nodePools": _used(listing(dns_name, 20), "Names in order of preference."),
}
"""Of the workload, not of its pods."""
POD: Final[Fields] = {
    "image": _used(image, "Without a registry it is on docker.io."),
    "command": _used(words, "One string, split into words like a shell."),
    "args": _used(words, "One string, split into words like a shell."),
    "workingDir": _used(text(1024, shortest=1)),
    "compute": _used(compute, "Whole GPUs or a fraction. GPU memory and growing fractions are rejected."),
    "environmentVariables": _used(parts.variables, "Plain values, available Secrets and ConfigMaps, and pod fields."),
    "labels": _used(
        parts.labels, "On the workload and its pods. priorityClassName and preemptibility set the requested values."
    ),
    "annotations": _used(parts.annotations, "Only the annotations that Rung supports."),
    "imagePullPolicy": _used(choice("Always", "Never", "IfNotPresent")),
    "imagePullSecrets": _used(parts.pull_secrets, "Secrets available to the project."),
    "probes": _used(parts.probes, "Readiness probe of the pod."),
    "security": _used(security, "Only restrictions."),
    "storage": _used(storage, "Claims, scratch space, available Secrets and ConfigMaps; no host paths."),
    "tolerations": _used(parts.tolerations, "GPU taints, and taints allowed by an admin."),
    "createHomeDir": _stored(boolean, "Set by the image."),
    "nodeType": _unsupported("Not supported: use nodePools."),
    "nodeAffinityRequired": _unsupported("Affinity is not supported. Use nodePools."),
    "podAffinity": _unsupported(
        "Affinity is not supported. Use the annotations rung.dev/placement and rung.dev/topology-key."
    ),
}
"""What every pod template takes."""
URLS: Final[Fields] = {
    "exposedUrls": _stored(parts.exposed_urls, "External addresses are not supported."),
    "ports": _used(parts.ports, "Container port. Service types and external ports are stored without effect."),
    "relatedUrls": _stored(parts.related_urls, "Visible to everyone who can see the workload."),
}
_RUN: Final[Fields] = {
    "terminateAfterPreemption": _unsupported("Evicted workloads always restart. Stop the workload to prevent this."),
    "terminationGracePeriodSeconds": _used(integer(0, LONGEST_GRACE)),
    "stdin": _used(boolean),
    "tty": _used(boolean),
}
_ENDING: Final[Fields] = {
    "autoDeletionTimeAfterCompletionSeconds": _used(integer(), "Deletes the objects in the cluster; the record stays."),
    "backoffLimit": _used(integer()),
}
_NEVER_ENDS: Final[Fields] = {
    "autoDeletionTimeAfterCompletionSeconds": _stored(integer(), "A workspace runs until it is stopped."),
    "backoffLimit": _stored(integer(), "Workspaces restart without a limit."),
    "restartPolicy": _used(only("Always", "Workspaces always restart.")),
}
MASTER: Final[Fields] = {
    **WHOLE,
    **POD,
    **URLS,
    **_RUN,
    **{name: _stored(field.rule, "The value of the workers applies.") for name, field in _ENDING.items()},
    "restartPolicy": _used(choice("Always", "Never", "OnFailure")),
}
"""`masterSpec`: the leading pod. A gang has one pair, that of `spec`; without a priority there, the master's counts."""
_SCALING: Final[Mapping[str, Rule]] = {
    "minReplicas": integer(1, MOST),
    "maxReplicas": integer(1, MOST),
    "initialReplicas": integer(0, MOST),
    "activationReplicas": integer(1, MOST),
    "concurrencyHardLimit": integer(),
    "scaleToZeroRetentionSeconds": integer(0, 3600),
    "scaleDownDelaySeconds": integer(0, 3600),
    "scaleWindowSeconds": integer(60, 3600),
    "initializationTimeoutSeconds": integer(1),
    "metric": WORD,
    "metricThreshold": _anything,
    "metricThresholdPercentage": parts.number,
}


def _fixed(value: Any, place: Location) -> Any:
    """Replicas, if the bounds leave no choice."""
    found = _scaling(value, place)
    if not isinstance(found, dict):
        return found
    count = found.get("minReplicas", 1)
    for name in ("maxReplicas", "initialReplicas"):
        if found.get(name, count) != count:
            place.at(name).refuse("out_of_range", _STEADY, (str(count),))
    return count


_scaling: Rule = table(_SCALING)
_TIMEOUTS: Final = {"initializationTimeoutSeconds": integer(1), "requestTimeoutSeconds": integer(1)}
_ACCESS: Final[Mapping[str, Rule]] = {
    "authorizationType": choice(
        "public", "authenticatedUsers", "authorizedUsers", "authorizedGroups", "authorizedUsersOrGroups"
    ),
    "authorizedUsers": _users,
    "authorizedGroups": _users,
}
_SERVED: Final = "Address inside the cluster. External access settings are stored without effect."
_PROTOCOL: Final = choice("http", "grpc")

_NOT_OF_A_SERVICE: Final = frozenset(
    {
        "command",
        "args",
        "workingDir",
        "storage",
        "createHomeDir",
        "nodeType",
        "nodeAffinityRequired",
        "podAffinity",
    }
)
_model_claim: Rule = table(
    {
        "existingPvc": only(allowed=True, why="Rung does not create claims. Use an existing one."),
        "claimName": dns_name,
        "readOnly": only(allowed=False, why="The model is downloaded to this claim."),
        "claimInfo": nothing("Rung does not create claims. Use an existing one."),
    },
    required=["existingPvc", "claimName"],
)

FIELDS: Final[Mapping[str, Fields]] = {
    "workspaces": {**WHOLE, **POD, **URLS, **_RUN, **_NEVER_ENDS},
    "trainings": {
        **WHOLE,
        **POD,
        **URLS,
        **_RUN,
        **_ENDING,
        "restartPolicy": _used(choice("Never", "OnFailure"), "Always is not supported for training."),
        "parallelism": _used(integer(1, 10_000)),
        "completions": _used(integer(1, MOST_COMPLETIONS)),
    },
    "distributed": {
        **WHOLE,
        **POD,
        **URLS,
        **_RUN,
        **_ENDING,
        "restartPolicy": _used(choice("Always", "Never", "OnFailure")),
        "distributedFramework": _used(choice(*FRAMEWORKS)),
        "numWorkers": _used(integer(1, MOST), "In addition to the master, if the framework has one."),
        "minReplicas": _used(integer(1, MOST), "Number of workers that start together with the master."),
        "maxReplicas": _used(integer(1, MOST), "Must equal numWorkers. Autoscaling is not supported."),
        "slotsPerWorker": _used(integer(1, 64), "MPI only."),
        "sshAuthMountPath": _used(mount_path, "MPI only."),
        "mpiLauncherCreationPolicy": _used(only("AtStartup", "Launcher and workers always start together.")),
        "cleanPodPolicy": _used(choice("None", "All", "Running")),
    },
    "inferences": {
        **WHOLE,
        **POD,
        **URLS,
        "autoscaling": _used(_fixed, "minReplicas is the number of replicas; maxReplicas must be equal."),
        "servingPort": _used(
            table({"container": PORT, "protocol": _PROTOCOL, **_ACCESS, "clusterLocalAccessOnly": boolean}), _SERVED
        ),
        "servingConfiguration": _stored(table(_TIMEOUTS), "Not supported: requests go directly to the pod."),
    },
    "distributed-inferences": {
        **WHOLE,
        "workers": _used(integer(0, MOST), "In addition to the leader, in each replica."),
        "replicas": _used(integer(1, MOST)),
        "leader": _used(object_rule(POD)),
        "worker": _used(object_rule(POD)),
        "startupPolicy": _used(choice("LeaderCreated", "LeaderReady")),
        "restartPolicy": _used(choice("RecreateGroupOnPodRestart", "None")),
        "servingPort": _used(
            table(
                {"port": PORT, "protocol": _PROTOCOL, **_ACCESS, "exposeExternally": boolean, "exposedUrl": text(2048)}
            ),
            _SERVED,
        ),
    },
    "nim-services": {
        **WHOLE,
        **{name: field for name, field in POD.items() if name not in _NOT_OF_A_SERVICE},
        "replicas": _used(integer(1, MOST)),
        "autoscaling": _used(_fixed, "minReplicas is the number of replicas; maxReplicas must be equal."),
        "ngcAuthSecret": _used(secret, "An available Secret with the key NGC_API_KEY."),
        "modelStore": _used(
            table({"pvc": _model_claim, "nimCache": nothing("Use a claim. Caches can be created as manifests.")}),
            "An existing claim for the model.",
        ),
        "multiNode": _unsupported("Not supported: submit a distributed inference instead."),
        "servingPort": _used(
            table(
                {
                    "serviceType": WORD,
                    "port": PORT,
                    "grpcPort": PORT,
                    "metricsPort": PORT,
                    "exposeExternally": boolean,
                    "exposedUrl": text(2048),
                    "exposedProtocol": WORD,
                }
            ),
            _SERVED,
        ),
    },
}
CHANGEABLE: Final[Mapping[str, frozenset[str]]] = {
    "inferences": frozenset(
        {
            "priorityClass",
            "preemptibility",
            "category",
            "nodePools",
            "image",
            "command",
            "args",
            "compute",
            "environmentVariables",
            "imagePullPolicy",
            "imagePullSecrets",
            "autoscaling",
            "servingConfiguration",
            "nodeType",
            "nodeAffinityRequired",
            "podAffinity",
            "probes",
            "workingDir",
            "createHomeDir",
        }
    ),
    "distributed-inferences": frozenset({"replicas"}),
    "nim-services": frozenset(FIELDS["nim-services"]) - {"labels", "annotations", "modelStore", "servingPort"},
}
"""Fields that a PATCH of this kind may name."""
