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
from clusters.ports.objects import CONFIG_MAP
from clusters.ports.workload_kinds import KINDS
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import FairSharingStrategy, Preemptibility

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
    f"Kueue's configuration ({WHERE}) is unknown: not read yet, missing, or not readable by Rung's account. Kinds "
    "whose integration is disabled run outside all quotas, and Rung cannot reject them."
)
OFF: Final = (
    "Integrations are disabled in Kueue's configuration ({integrations}). Rung rejects workloads of the kinds "
    "{kinds}. Running ones are not counted by any quota."
)
NARROWED: Final = (
    "Kueue's configuration has a custom managedJobsNamespaceSelector. Projects whose namespaces it excludes run "
    "outside all quotas. Rung does not check which ones."
)
RANDOM: Final = (
    "Kueue's fair sharing is enabled. It chooses at random between departments with equal weighted shares, and may "
    "evict workloads of both."
)
IMPATIENT: Final = (
    "Kueue's waitForPodsReady is enabled: admitted workloads without ready pods in time are evicted and queued "
    "again. Forecasts do not model this."
)
FAIR_SHARING_ASSUMED: Final = (
    "Assumption: Kueue's fair sharing is disabled, which is its default. Its configuration on this cluster is unknown."
)
WOULD_RUN_OUTSIDE: Final = (
    "the integration {integration} is disabled in Kueue's configuration, so a {kind} would run outside all quotas. A "
    f"platform admin can enable it ({WHERE})"
)
ASSUMED: Final = (
    "Assumption: Kueue manages {kind}, because its configuration is unknown. If the integration {integration} is "
    "disabled, the workload runs immediately and outside all quotas."
)


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
        "fair": _strategies(value) if _is_on(value, "fairSharing") else [],
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


def _strategies(value: Mapping[str, Any]) -> list[str]:
    """Of fair sharing that is on; both, where the configuration names none that is known here."""
    known = [each.value for each in FairSharingStrategy]
    return [each for each in _texts(value["fairSharing"].get("preemptionStrategies")) if each in known] or known


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
    if not _is_known(facts) or _is_managed(facts, kind):
        return ""
    return WOULD_RUN_OUTSIDE.format(integration=_integration(kind), kind=kind)


def kind_warnings(facts: Facts, kind: str) -> tuple[str, ...]:
    """What is not known about a workload of this kind."""
    return () if _is_known(facts) else (ASSUMED.format(kind=kind, integration=_integration(kind)),)


def _integration(kind: str) -> str:
    return QUEUED_WHOLE.get(kind) or BY_JOBS.get(kind) or BY_PODS


PROPOSALS: Final[Mapping[str, Facts]] = {
    "classical": _facts({}),
    "fair-sharing": _facts({"fairSharing": {"enable": True}}),
}
"""As Kueue ships, and the same with fair sharing."""


def _is_known(facts: Facts) -> bool:
    """The configuration was read. Facts also hold what other objects say, and may hold nothing else."""
    return "integrations" in facts


def _is_managed(facts: Facts, kind: str) -> bool:
    return _integration(kind) in facts["integrations"] or kind in facts["external"]


def admin_warnings(facts: Facts) -> tuple[str, ...]:
    """What a configuration means for quotas and forecasts; `UNREAD` where nothing could be read."""
    return tuple(_warnings(facts)) if _is_known(facts) else (UNREAD,)


def _warnings(facts: Facts) -> Iterator[str]:
    if off := kinds_outside_quotas(facts):
        others = ("all kinds that Kueue does not support",) if "Pod" in off else ()
        yield OFF.format(integrations=", ".join(map(_integration, off)), kinds=", ".join((*off, *others)))
    limits = {NARROWED: facts["narrowed"], IMPATIENT: facts["impatient"]}
    yield from (sentence for sentence, so in limits.items() if so)


def kinds_outside_quotas(facts: Facts) -> tuple[str, ...]:
    """Kinds that would run outside every quota. Without the integration `pod` so does any that Kueue does not know."""
    return tuple(kind for kind in QUEUED_WHOLE if not _is_managed(facts, kind)) if _is_known(facts) else ()


def fair_sharing(facts: Facts) -> tuple[FairSharingStrategy, ...]:
    """Its strategies in their order; none: it is off, or nothing could be read."""
    return tuple(map(FairSharingStrategy, facts.get("fair", ())))


def assumption(facts: Facts) -> str:
    """What `fair_sharing` rests on where nothing could be read; empty: on what was read."""
    return "" if _is_known(facts) else FAIR_SHARING_ASSUMED


def forecast_warnings(facts: Facts, outcome: str) -> tuple[str, ...]:
    """Notes for owners of workloads that wait for quota, or take it from other projects."""
    if not _is_known(facts):
        return () if outcome == OutcomeKind.PLACED else (assumption(facts),)
    reclaims = outcome in {OutcomeKind.RECLAIMS, OutcomeKind.PREEMPTS_AND_RECLAIMS}
    return (RANDOM,) if facts.get("fair") and reclaims else ()


EVICTABLE: Final = (
    "Kueue cannot protect it: a higher priority in the same project may evict it, and while the project borrows, any "
    "of its workloads may be reclaimed."
)


def warnings_for(*, preemptibility: str) -> Sequence[str]:
    """That non-preemptible work may be evicted."""
    return (EVICTABLE,) if preemptibility == Preemptibility.NON_PREEMPTIBLE else ()


NOT_ALL: Final = (
    "Rung rejects kinds whose integration is disabled in Kueue's configuration, because they would run outside "
    "all quotas: {kinds}."
)
NOT_KNOWN: Final = (
    "Kueue's configuration is unknown. Kinds whose integration is disabled run outside all quotas without notice."
)
READ: Final = "Enable the integrations, or let Rung's account read the configuration."
QUOTAS: Final = ("over_quota_and_reclaim", "department_limit", "quota_per_node_pool")
"""Guarantees that hold only for what Kueue manages."""


def guarantees_of(facts: Facts) -> tuple[Guarantee, ...]:
    """What Kueue keeps of Rung's guarantees where it is configured so."""
    off = kinds_outside_quotas(facts)
    if _is_known(facts) and not off:
        return GUARANTEES
    limit = NOT_ALL.format(kinds=", ".join(off)) if off else NOT_KNOWN
    return tuple(_partly(each, limit) if each.code in QUOTAS else each for each in GUARANTEES)


def _partly(guarantee: Guarantee, limit: str) -> Guarantee:
    remedy = " ".join(filter(None, (guarantee.remedy, READ)))
    return replace(guarantee, enforced="partly", explanation=f"{guarantee.explanation} {limit}", remedy=remedy)


GUARANTEES: Final = (
    Guarantee(
        "priority_inside_project",
        "Priority applies only within the project",
        "partly",
        "In its own queue a job evicts lower priorities. From other queues it reclaims what they have borrowed, "
        "regardless of priority. A job that requests more than its project deserves never evicts, not even in its "
        "own queue. Admitted pods without a node wait in order of priority, in the whole cluster, and do not "
        "evict.",
        "Keep the sum of deserved quotas within the capacity of each pool, so that admitted workloads find nodes.",
    ),
    Guarantee(
        "foreign_pods_stay",
        "Pods not managed by Rung are not evicted",
        "yes",
        "Kueue evicts only workloads of its own queues. Rung's PriorityClasses have the policy Never there, so "
        "the kube-scheduler does not evict for their pods. Admitted workloads wait if foreign pods use their "
        "capacity.",
        "Run foreign pods on separate nodes outside the pools.",
    ),
    Guarantee(
        "never_evicts_nobody",
        "Priorities with the policy Never do not evict",
        "no",
        "Kueue's priority classes have no preemption policy: the job preempts like any other.",
        "Give workloads that should not evict others a low priority or a separate project.",
    ),
    Guarantee(
        "non_preemptible_stays",
        "Non-preemptible workloads are never evicted",
        "no",
        "Kueue has no preemptibility: a higher priority in the same queue may evict them, and while the project "
        "borrows, any of its workloads may be reclaimed.",
        "Give workloads that must not be evicted the highest priority of the project, or use KAI.",
    ),
    Guarantee(
        "non_preemptible_in_deserved",
        "Non-preemptible workloads stay within the deserved quota",
        "partly",
        "Rung rejects a workload that alone exceeds it. Otherwise Kueue counts all workloads of a queue alike.",
        "Use KAI where the cluster itself must enforce it.",
    ),
    Guarantee(
        "over_quota_and_reclaim",
        "Over-quota capacity is lent and reclaimed",
        "partly",
        "Unused deserved quota of others can be borrowed up to the limit, and is reclaimed from borrowers of any "
        "priority. Only quota can be lent: capacity that no department deserves is never used.",
        "Assign the whole capacity of a pool as deserved quota of departments.",
    ),
    Guarantee(
        "department_limit",
        "A department's limit caps its projects",
        "yes",
        "The Cohort's borrowing limit enforces the department's limit for all its projects together.",
    ),
    Guarantee(
        "rank",
        "Rank orders projects for surplus capacity",
        "no",
        "Kueue has no queue rank. If fair sharing is enabled, the over-quota weight counts.",
        "Use KAI where rank matters.",
    ),
    Guarantee(
        "gang",
        "Distributed jobs start all pods together",
        "partly",
        "A job is admitted with all its pods or waits. The kube-scheduler then places the pods one by one, and "
        "kinds that Kueue does not support are queued pod by pod.",
        "Keep the sum of deserved quotas within the capacity of each pool, or add topology levels to the pool: "
        "Kueue then admits only what fits on nodes.",
    ),
    Guarantee(
        "topology",
        "A gang stays in one topology domain",
        "yes",
        "The pool's levels become a Kueue Topology. A gang that requires a level is admitted only if one domain "
        "fits all its pods; all other jobs of the pool are then checked against nodes too. Nodes without the "
        "labels of all levels are not used. Kueue supports at most two roles, one of them with a single pod; "
        "others are rejected.",
    ),
    Guarantee(
        "quota_per_node_pool",
        "Quotas apply per node pool",
        "yes",
        "Each pool is a flavor of the project's queue with its own amounts. Kinds that Kueue is not configured to "
        "manage are rejected.",
    ),
    Guarantee(
        "min_runtime",
        "Workloads are protected for their minimum runtime",
        "partly",
        f"Kueue evicts lower priorities and borrowers regardless of their runtime, {HELD_BY_RUNG}",
        "Keep such workloads within the deserved quota and at a high priority, or use KAI.",
    ),
)
