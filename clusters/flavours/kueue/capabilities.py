"""What a cluster's Kueue configuration means: managed kinds, evictions, guarantees and warnings. Pure.

Source: Kueue 0.19, `config.kueue.x-k8s.io`. A kind whose integration is off runs outside every quota, even with the
name of a queue; as shipped these are most of Kubeflow's. A bare Pod needs the integration `pod` itself: where a
Deployment's brings it along, Kueue skips pods without such a parent. The text is a stranger's: read strictly, within
bounds; only words that are known here are kept of it.

Source: Kueue 0.19, as its controller was seen to decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from clusters.flavours.pod_status import config_document
from clusters.ports.flavour import HELD_BY_RUNG, Facts, Guarantee
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.kinds import CONFIG_MAP
from clusters.ports.workload_kinds import KINDS
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import Preemptibility

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
    value = config_document(found, KEY)
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


def kind_warnings(facts: Facts, kind: str) -> tuple[str, ...]:
    """What is not known about a workload of this kind."""
    return () if facts else (ASSUMED.format(kind=kind, integration=_integration(kind)),)


def _integration(kind: str) -> str:
    return QUEUED_WHOLE.get(kind) or BY_JOBS.get(kind) or BY_PODS


def _is_managed(facts: Facts, kind: str) -> bool:
    return _integration(kind) in facts["integrations"] or kind in facts["external"]


def admin_warnings(facts: Facts) -> tuple[str, ...]:
    """What a configuration means for quotas and forecasts; `UNREAD` where nothing could be read."""
    return tuple(_warnings(facts)) if facts else (UNREAD,)


def _warnings(facts: Facts) -> Iterator[str]:
    if off := kinds_outside_quotas(facts):
        others = ("all that Kueue does not know",) if "Pod" in off else ()
        yield OFF.format(integrations=", ".join(map(_integration, off)), kinds=", ".join((*off, *others)))
    said = {NARROWED: facts["narrowed"], FAIR: facts["fair"], IMPATIENT: facts["impatient"]}
    yield from (sentence for sentence, so in said.items() if so)


def kinds_outside_quotas(facts: Facts) -> tuple[str, ...]:
    """Kinds that would run outside every quota. Without the integration `pod` so does any that Kueue does not know."""
    return tuple(kind for kind in QUEUED_WHOLE if not _is_managed(facts, kind)) if facts else ()


def forecast_warnings(facts: Facts, foretold: str) -> tuple[str, ...]:
    """What people are told of it whose workload waits or evicts others."""
    return (OTHERWISE,) if facts and facts["fair"] and foretold != OutcomeKind.PLACED else ()


EVICTABLE: Final = (
    "Kueue cannot protect it: a higher priority in the same project may evict it, and while the project borrows, any "
    "of its workloads may be reclaimed."
)


def warnings_for(*, preemptibility: str) -> Sequence[str]:
    """That non-preemptible work may be evicted."""
    return (EVICTABLE,) if preemptibility == Preemptibility.NON_PREEMPTIBLE else ()


NOT_ALL: Final = (
    "Kinds whose integration is off in Kueue's configuration run outside every quota; Rung refuses them: {kinds}."
)
NOT_KNOWN: Final = (
    "Kueue's configuration is not known: kinds whose integration is off there run outside every quota, unnoticed."
)
READ: Final = "Switch the integrations on, or let Rung's account read the configuration."
QUOTAS: Final = ("over_quota_and_reclaim", "department_limit", "quota_per_node_pool")
"""Promises that hold only for what Kueue manages."""


def guarantees_of(facts: Facts) -> tuple[Guarantee, ...]:
    """What Kueue keeps of Rung's promises where it is configured so."""
    off = kinds_outside_quotas(facts)
    if facts and not off:
        return GUARANTEES
    said = NOT_ALL.format(kinds=", ".join(off)) if facts else NOT_KNOWN
    return tuple(_partly(each, said) if each.code in QUOTAS else each for each in GUARANTEES)


def _partly(promise: Guarantee, said: str) -> Guarantee:
    remedy = " ".join(filter(None, (promise.remedy, READ)))
    return replace(promise, enforced="partly", explanation=f"{promise.explanation} {said}", remedy=remedy)


GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority acts only inside the project",
        "partly",
        "In its own queue a job evicts lower priorities. In other queues it reclaims what they have borrowed, whatever "
        "their priority. A job that asks for more than its project deserves evicts nobody, not even in its own queue. "
        "Pods that were admitted and find no node wait for one by priority, on the whole cluster, and evict nobody.",
        "Keep the sum of deserved quotas within the nodes of each pool, so that what is admitted finds room.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods that are none of Rung's are left alone",
        "yes",
        "Kueue evicts only workloads of its own queues, and Rung's PriorityClasses carry the policy Never there, so "
        "the kube-scheduler evicts nobody for their pods. What was admitted waits where foreign pods take its room.",
        "Give foreign pods nodes of their own, outside the pools.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "An entry with the policy Never evicts nobody",
        "no",
        "Kueue's priority classes have no policy: such a job preempts like any other.",
        "Keep what should evict nobody on a low priority, or in a project of its own.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible work is never evicted",
        "no",
        "Kueue knows no preemptibility: a higher priority in the same queue evicts it, and while its project borrows, "
        "any of its workloads may be reclaimed.",
        "Give work that must stay the highest priority of its project, or choose KAI.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible work stays inside the deserved quota",
        "partly",
        "Rung refuses a workload that alone exceeds it; beside others Kueue counts all work of a queue alike.",
        "Choose KAI where the cluster itself has to refuse it.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota use is lent out and reclaimed",
        "partly",
        "What others deserve and do not use is borrowed, up to the limit, and reclaimed from borrowers of any "
        "priority. The quotas are all there is to lend: nodes that no department deserves are never used.",
        "Let the departments deserve all of a pool between them.",
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "yes",
        "The Cohort's borrowing limit ends at the department's limit, for all its projects together.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for the surplus",
        "no",
        "Kueue has no rank of queues; with its fair sharing switched on, the over-quota weight counts.",
        "Choose KAI where rank matters.",
    ),
    Guarantee(
        "gang",
        "A distributed job starts whole or not at all",
        "partly",
        "A job is admitted with all its pods or waits with all of them. Whether its nodes have room is the "
        "kube-scheduler's affair, pod by pod, and kinds that Kueue does not know are queued pod by pod.",
        "Keep the sum of deserved quotas within the nodes of each pool, or give the pool topology levels: "
        "Kueue then admits only what finds its places on nodes.",
    ),
    Guarantee(
        "topology",
        "A gang keeps to one domain of close nodes",
        "yes",
        "The pool's levels become a Topology of Kueue's. A gang that names a level is admitted only where one "
        "domain has places for all its pods; with levels every other job of the pool is given places on nodes as "
        "well. Nodes without all labels of the levels take no jobs at all. Kueue brings two roles together at "
        "most, one of them of a single pod: others are refused.",
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas hold per node pool",
        "yes",
        "Each pool is a flavor of the project's queue, with an amount of its own. Kinds that Kueue does not manage, as "
        "its configuration says, are refused.",
    ),
    Guarantee(
        "min_runtime",
        "Young work is left alone for its min guaranteed runtime",
        "partly",
        f"Kueue evicts lower priorities and borrowers however short they have run, {HELD_BY_RUNG}",
        "Keep work that needs its time within the deserved quota and on a high priority, or choose KAI.",
    ),
)
