"""What a cluster's own configuration of Kueue means for Rung's words: which kinds it manages, and how it evicts. Pure.

Source: Kueue 0.19, `config.kueue.x-k8s.io`. A kind whose integration is off runs outside every quota, even
with the name of a queue; as shipped these are most of Kubeflow's. A bare Pod needs the integration `pod` itself: where
a Deployment's brings it along, Kueue skips pods without such a parent. The text is a stranger's: read strictly, within
bounds; only words that are known here are kept of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from clusters.flavours.reading import settings_in
from clusters.kinds import KINDS
from clusters.kinds_core import CONFIG_MAP
from clusters.ports import Facts, Manifest, ObjectRef
from scheduling.decisions import Kind

CONF: Final = ObjectRef(CONFIG_MAP, "kueue-manager-config", "kueue-system")
KEY: Final = "controller_manager_config.yaml"
WHERE: Final = f"ConfigMap {CONF.namespace}/{CONF.name}, {KEY}"

QUEUED_WHOLE: Final[Mapping[str, str]] = {
    "Job": "batch/job",
    "JobSet": "jobset.x-k8s.io/jobset",
    "PyTorchJob": "kubeflow.org/pytorchjob",
    "TFJob": "kubeflow.org/tfjob",
    "XGBoostJob": "kubeflow.org/xgboostjob",
    "MPIJob": "kubeflow.org/mpijob",
    "JAXJob": "kubeflow.org/jaxjob",
    "RayJob": "ray.io/rayjob",
    "RayCluster": "ray.io/raycluster",
    "RayService": "ray.io/rayservice",
    "Pod": "pod",
    "Deployment": "deployment",
    "StatefulSet": "statefulset",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkerset",
}
"""Kinds that Kueue knows, with the integration that manages each. Of any other kind it can queue the pods."""
BY_JOBS: Final[Mapping[str, str]] = {"CronJob": "batch/job"}
BY_PODS: Final = "pod"
INTEGRATIONS: Final = tuple(dict.fromkeys((*QUEUED_WHOLE.values(), BY_PODS)))
DEFAULT: Final = ("batch/job",)
"""What Kueue manages where its configuration names nothing."""
OWN_NAMESPACES: Final = frozenset({"kube-system", "kueue-system"})

HEAD: Final = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"

UNREAD: Final = (
    f"Kueue's configuration ({WHERE}) is not known: it was not read yet, is not there, or Rung's account may not get "
    "it. Kinds whose integration is off run outside every quota, and Rung cannot refuse them."
)
OFF: Final = (
    "Kueue's configuration leaves out integrations ({integrations}): Rung refuses workloads of the kinds {kinds}. What "
    "runs of them already is counted by no quota."
)
NARROWED: Final = (
    "Kueue's configuration has a managedJobsNamespaceSelector of its own: projects whose namespaces it leaves out run "
    "outside every quota. Rung does not check which these are."
)
FAIR: Final = "Kueue's fair sharing is on: it may choose other victims than the model, which compares without it."
IMPATIENT: Final = (
    "Kueue's waitForPodsReady is on: what was admitted and has no ready pods in time is evicted and queued again. "
    "Forecasts leave this out."
)
WOULD_RUN_OUTSIDE: Final = (
    "the integration {integration} is off in Kueue's configuration, so a {kind} would run outside every quota. A "
    f"platform admin can switch it on ({WHERE})"
)
ASSUMED: Final = (
    "It is assumed that Kueue manages a {kind}: its configuration is not known. Where the integration {integration} is "
    "off, it runs at once and outside every quota."
)
OTHERWISE: Final = "This may come otherwise. " + FAIR


def of_everything() -> Manifest:
    """A configuration in which no integration is off."""
    frameworks = "".join(f"  - {each}\n" for each in INTEGRATIONS)
    text = f"{HEAD}integrations:\n  frameworks:\n{frameworks}"
    metadata = {"name": CONF.name, "namespace": CONF.namespace}
    return {"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": metadata, "data": {KEY: text}}


def facts_of(found: Manifest | None) -> Facts:
    """What is kept of a ConfigMap; empty where there is none or it says nothing readable."""
    value = settings_in(found, KEY)
    return _facts(value) if value is not None and value.get("kind") == "Configuration" else {}


def _facts(value: Mapping[str, Any]) -> Facts:
    given = value.get("integrations")
    integrations = given if isinstance(given, Mapping) else {}
    named = set(_texts(integrations.get("frameworks"))) or set(DEFAULT)
    external = set(_texts(integrations.get("externalFrameworks")))
    return {
        "integrations": [each for each in INTEGRATIONS if each in named],
        "external": [each.kind for each in KINDS if external & {_external(each.kind, at) for at in each.api_versions}],
        "narrowed": _is_narrowed(value.get("managedJobsNamespaceSelector")),
        "fair": _is_on(value, "fairSharing"),
        "impatient": _is_on(value, "waitForPodsReady"),
    }


def _texts(value: object) -> Iterator[str]:
    return (each for each in value if isinstance(each, str)) if isinstance(value, list) else iter(())


def _external(kind: str, api_version: str) -> str:
    """`PipelineRun.v1.tekton.dev`, as the configuration names a kind that another controller manages."""
    group, _, version = api_version.rpartition("/")
    return f"{kind}.{version}.{group}"


def _is_on(value: Mapping[str, Any], name: str) -> bool:
    """In v1beta2 what is there is on; before, it said so itself."""
    part = value.get(name)
    is_new = str(value.get("apiVersion", "")).endswith("/v1beta2")
    return isinstance(part, Mapping) and part.get("enable", is_new) is True


def _is_narrowed(selector: object) -> bool:
    """It leaves out more than what belongs to Kubernetes and Kueue themselves."""
    if not isinstance(selector, Mapping):
        return False
    expressions = selector.get("matchExpressions") or []
    return bool(selector.get("matchLabels")) or not (
        isinstance(expressions, list) and all(map(_leaves_out_systems, expressions))
    )


def _leaves_out_systems(expression: object) -> bool:
    return (
        isinstance(expression, Mapping)
        and expression.get("operator") == "NotIn"
        and set(_texts(expression.get("values"))) <= OWN_NAMESPACES
    )


def unmanaged(facts: Facts, kind: str) -> str:
    """Why a workload of this kind would run outside every quota; empty: it would not, or nothing could be read."""
    if not facts or _is_managed(facts, kind):
        return ""
    return WOULD_RUN_OUTSIDE.format(integration=_integration(kind), kind=kind)


def kind_cautions_of(facts: Facts, kind: str) -> tuple[str, ...]:
    """What is not known about a workload of this kind."""
    return () if facts else (ASSUMED.format(kind=kind, integration=_integration(kind)),)


def _integration(kind: str) -> str:
    return QUEUED_WHOLE.get(kind) or BY_JOBS.get(kind) or BY_PODS


def _is_managed(facts: Facts, kind: str) -> bool:
    return _integration(kind) in facts["integrations"] or kind in facts["external"]


def warnings_of(facts: Facts) -> tuple[str, ...]:
    """What a configuration means for quotas and forecasts; `UNREAD` where nothing could be read."""
    return tuple(_warnings(facts)) if facts else (UNREAD,)


def _warnings(facts: Facts) -> Iterator[str]:
    if off := outside(facts):
        others = ("all that Kueue does not know",) if "Pod" in off else ()
        yield OFF.format(integrations=", ".join(map(_integration, off)), kinds=", ".join((*off, *others)))
    said = {NARROWED: facts["narrowed"], FAIR: facts["fair"], IMPATIENT: facts["impatient"]}
    yield from (sentence for sentence, so in said.items() if so)


def outside(facts: Facts) -> tuple[str, ...]:
    """Kinds that would run outside every quota. Without the integration `pod` so does any that Kueue does not know."""
    return tuple(kind for kind in QUEUED_WHOLE if not _is_managed(facts, kind)) if facts else ()


def cautions_of(facts: Facts, foretold: str) -> tuple[str, ...]:
    """What people are told of it whose workload waits or evicts others."""
    return (OTHERWISE,) if facts and facts["fair"] and foretold != Kind.PLACED else ()
