"""Serving: Knative, KServe, leader-worker sets, Seldon and NVIDIA's operators."""

from typing import Any, Final

from workloads.intake.rules.environment import env, secret
from workloads.intake.rules.kinds.core import REPLICAS, amount_or_share
from workloads.intake.rules.pods import FIELDS as CONTAINER
from workloads.intake.rules.pods import PLACED, pod_metadata, pod_spec, template
from workloads.intake.rules.scalars import (
    REVISION_ANNOTATIONS,
    annotations,
    cpu,
    dns_label,
    gpus,
    identifier,
    image,
    labels,
    memory,
    resources,
)
from workloads.intake.rules.values import (
    ABSENT,
    Location,
    Rule,
    choice,
    forbidden,
    integer,
    listing,
    mapping,
    table,
    text,
)

_revision_metadata: Rule = table({"labels": labels, "annotations": annotations(REVISION_ANNOTATIONS)})
_revision: Rule = pod_spec(
    extra={"containerConcurrency": integer(0, 1000), "timeoutSeconds": integer(1, 3600)}, restart=("Always",)
)
_LEAST: Final = "autoscaling.knative.dev/min-scale"
_MOST: Final = "autoscaling.knative.dev/max-scale"


def _bounded_revision(value: Any, place: Location) -> Any:
    """A revision that cannot grow past what was counted: without an upper bound its lower one is written."""
    rebuilt = template(_revision, metadata=_revision_metadata)(value, place)
    if rebuilt is not ABSENT:
        notes = rebuilt.setdefault("metadata", {}).setdefault("annotations", {})
        least = max(int(notes.get(_LEAST, 1)), 1)
        if _MOST not in notes:
            place.report.warn(f"{_MOST} was set to {least}, so that the service cannot grow.")
        if int(notes.setdefault(_MOST, str(least))) < least:
            place.at("metadata").at("annotations").at(_MOST).refuse("out_of_range", f"Must be at least {least}.")
    return rebuilt


knative_service: Rule = table({"template": _bounded_revision}, required=["template"])

_URI: Final = text(2048, r"(s3|gs|pvc|hf|https)://[^\s]+", "a storage address such as s3://bucket/model", shortest=1)
_model: Rule = table(
    {
        "modelFormat": table({"name": dns_label, "version": text(20)}, required=["name"]),
        "storageUri": _URI,
        "runtime": dns_label,
        "protocolVersion": choice("v1", "v2", "grpc-v1", "grpc-v2"),
        "image": image,
        "args": CONTAINER["args"],
        "env": env,
        "resources": resources,
    },
    required=["modelFormat"],
)
_SCALE: Final[dict[str, Rule]] = {
    "minReplicas": REPLICAS,
    "maxReplicas": integer(1, 10_000),
    "scaleTarget": integer(1),
    "scaleMetric": choice("cpu", "memory", "concurrency", "rps"),
    "containerConcurrency": integer(0, 1000),
    "timeout": integer(1, 3600),
    "batcher": forbidden("Batching is not supported."),
}


def bounded(plain: Rule) -> Rule:
    """A component that cannot grow past what was counted: without an upper bound its lower one is written."""

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            least = max(rebuilt.get("minReplicas", 1), 1)
            if "maxReplicas" not in value:
                place.report.warn(f"maxReplicas was set to {least}, so that the component cannot grow.")
            if rebuilt.setdefault("maxReplicas", least) < least:
                place.at("maxReplicas").refuse("out_of_range", f"Must be at least minReplicas ({least}).")
        return rebuilt

    return check


_component: Rule = bounded(pod_spec(extra=_SCALE, restart=("Always",)))
_predictor_plain: Rule = bounded(pod_spec(extra={**_SCALE, "model": _model}, restart=("Always",), required=()))


def _predictor(value: Any, place: Location) -> Any:
    rebuilt = _predictor_plain(value, place)
    if rebuilt is not ABSENT and ("model" in value) == ("containers" in value):
        place.refuse("exactly_one", "Use exactly one of model and containers.", ("model", "containers"))
    return rebuilt


inference_service: Rule = table({"predictor": _predictor, "transformer": _component}, required=["predictor"])

_group: Rule = table(
    {
        "leaderTemplate": template(pod_spec(restart=("Always",))),
        "workerTemplate": template(pod_spec(restart=("Always",))),
        "size": integer(1, 1000),
        "restartPolicy": choice("RecreateGroupOnPodRestart", "None"),
    },
    required=["workerTemplate"],
)
leader_worker_set: Rule = table(
    {
        "replicas": REPLICAS,
        "leaderWorkerTemplate": _group,
        "startupPolicy": choice("LeaderCreated", "LeaderReady"),
        "rolloutStrategy": table(
            {
                "type": choice("RollingUpdate"),
                "rollingUpdateConfiguration": table({"maxSurge": amount_or_share, "maxUnavailable": amount_or_share}),
            }
        ),
        "networkConfig": table({"subdomainPolicy": choice("Shared", "UniquePerReplica")}),
    },
    required=["leaderWorkerTemplate"],
)

_graph: Rule = table(
    {
        "name": dns_label,
        "type": choice("MODEL", "TRANSFORMER", "ROUTER", "COMBINER"),
        "implementation": identifier,
        "modelUri": _URI,
        "endpoint": table({"type": choice("REST", "GRPC")}),
        "children": listing(table({"name": dns_label, "type": choice("MODEL", "TRANSFORMER")}, required=["name"]), 10),
    },
    required=["name"],
)
_component_spec: Rule = table({"metadata": pod_metadata, "spec": pod_spec(restart=("Always",))}, required=["spec"])
_seldon_predictor: Rule = table(
    {
        "name": dns_label,
        "replicas": REPLICAS,
        "traffic": integer(0, 100),
        "graph": _graph,
        "componentSpecs": listing(_component_spec, 10, least=1),
    },
    required=["name", "graph", "componentSpecs"],
)
seldon: Rule = table(
    {
        "name": dns_label,
        "protocol": choice("seldon", "v2", "tensorflow"),
        "predictors": listing(_seldon_predictor, 10, least=1, unique="name"),
    },
    required=["predictors"],
)

_NIM_IMAGE: Rule = table(
    {
        "repository": image,
        "tag": text(128, r"[A-Za-z0-9_][-.A-Za-z0-9_]*", "an image tag", shortest=1),
        "pullPolicy": choice("Always", "IfNotPresent", "Never"),
        "pullSecrets": listing(secret, 10),
    },
    required=["repository", "tag"],
)
_claim: Rule = table({"name": dns_label, "size": text(20, r"[0-9]+[KMGT]i?", "an amount such as 100Gi")})
nim_service: Rule = table(
    {
        "image": _NIM_IMAGE,
        "authSecret": secret,
        "replicas": REPLICAS,
        "resources": resources,
        "env": env,
        "storage": table(
            {"pvc": _claim, "nimCache": table({"name": dns_label, "profile": text(200)}, required=["name"])}
        ),
        "expose": table({"service": table({"type": choice("ClusterIP"), "port": integer(1, 65_535)})}),
        "nodeSelector": PLACED["nodeSelector"],
        "tolerations": PLACED["tolerations"],
        "schedulerName": forbidden("Rung sets the scheduler."),
        "draResources": forbidden("Device claims are not supported."),
    },
    required=["image"],
)
nim_cache: Rule = table(
    {
        "source": table(
            {
                "ngc": table(
                    {
                        "modelPuller": image,
                        "authSecret": secret,
                        "pullSecret": secret,
                        "model": table({"profiles": listing(text(200), 20), "engine": identifier}),
                    },
                    required=["modelPuller"],
                )
            },
            required=["ngc"],
        ),
        "storage": table({"pvc": _claim}),
        "resources": resources,
        "nodeSelector": PLACED["nodeSelector"],
        "tolerations": PLACED["tolerations"],
    },
    required=["source"],
)

_DEVICES: Final[dict[str, Rule]] = {"cpu": cpu, "memory": memory, "gpu": gpus}
_main_container: Rule = table(
    {key: CONTAINER[key] for key in ("image", "command", "args", "workingDir", "env")}, required=["image"]
)
_dynamo_service: Rule = table(
    {
        "componentType": choice("frontend", "worker", "planner", "main"),
        "replicas": REPLICAS,
        "resources": table({side: table(_DEVICES) for side in ("limits", "requests")}),
        "envs": env,
        "multinode": table({"nodeCount": integer(1, 1000)}),
        "extraPodSpec": table({"mainContainer": _main_container}, required=["mainContainer"]),
    },
    required=["extraPodSpec"],
)
dynamo: Rule = table(
    {
        "backendFramework": choice("vllm", "sglang", "trtllm"),
        "envs": env,
        "services": mapping(identifier, _dynamo_service, 20),
    },
    required=["services"],
)

SPECS: Final[dict[str, Rule]] = {
    "Service": knative_service,
    "InferenceService": inference_service,
    "LeaderWorkerSet": leader_worker_set,
    "SeldonDeployment": seldon,
    "NIMServices": nim_service,
    "NIMCache": nim_cache,
    "DynamoGraphDeployment": dynamo,
}
