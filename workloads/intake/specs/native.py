"""Kinds every API server serves: Pod, Job, CronJob and the apps group."""

from collections.abc import Mapping
from typing import Any, Final

from workloads.intake.names import dns_label
from workloads.intake.pods import match_labels, pod_metadata, pod_spec, template
from workloads.intake.rules import ABSENT, Place, Rule, choice, either, integer, listing, only, table, text
from workloads.intake.schedules import schedule, time_zone
from workloads.intake.volumes import claim_template

REPLICAS: Final = integer(0, 10_000)
MOST_COMPLETIONS: Final = 100_000
RUN_ONCE: Final = ("Never", "OnFailure")
not_suspended: Final = only(allowed=False, why="A workload is stopped and resumed by Rung.")
amount_or_share: Final = either((int, integer()), (str, text(4, r"(100|[0-9]{1,2})%", "a share such as 25%")))

_JOB: Final[dict[str, Rule]] = {
    "parallelism": REPLICAS,
    "completions": integer(1, MOST_COMPLETIONS),
    "completionMode": choice("NonIndexed", "Indexed"),
    "backoffLimit": integer(),
    "backoffLimitPerIndex": integer(),
    "maxFailedIndexes": integer(),
    "activeDeadlineSeconds": integer(1),
    "ttlSecondsAfterFinished": integer(),
    "podReplacementPolicy": choice("TerminatingOrFailed", "Failed"),
    "suspend": not_suspended,
}
_job_spec: Rule = table({**_JOB, "template": template(pod_spec(restart=RUN_ONCE))}, required=["template"])


def job_spec(value: Any, place: Place) -> Any:
    """A Job whose completions go together: an index needs a count, a limit per index needs an index."""
    rebuilt = _job_spec(value, place)
    if rebuilt is not ABSENT:
        _refuse_loose_indexes(rebuilt, place)
    return rebuilt


def _refuse_loose_indexes(job: Mapping[str, Any], place: Place) -> None:
    indexed = job.get("completionMode") == "Indexed"
    if indexed and "completions" not in job:
        place.at("completions").refuse("required", "An Indexed job says how many completions it has.")
    if "maxFailedIndexes" in job and "backoffLimitPerIndex" not in job:
        place.at("backoffLimitPerIndex").refuse("required", "maxFailedIndexes goes with backoffLimitPerIndex.")
    if job.get("maxFailedIndexes", 0) > job.get("completions", MOST_COMPLETIONS):
        place.at("maxFailedIndexes").refuse("out_of_range", "It is more than there are completions.")
    if "backoffLimitPerIndex" in job:
        if not indexed:
            place.at("completionMode").refuse("bad_value", "A limit per index needs an Indexed job.", ("Indexed",))
        if job.get("template", {}).get("spec", {}).get("restartPolicy") != "Never":
            where = place.at("template").at("spec").at("restartPolicy")
            where.refuse("bad_value", "A limit per index needs pods that never restart.", ("Never",))


job_template: Rule = table({"metadata": pod_metadata, "spec": job_spec}, required=["spec"])
cron_job: Rule = table(
    {
        "schedule": schedule,
        "timeZone": time_zone,
        "concurrencyPolicy": choice("Allow", "Forbid", "Replace"),
        "startingDeadlineSeconds": integer(),
        "successfulJobsHistoryLimit": integer(0, 100),
        "failedJobsHistoryLimit": integer(0, 100),
        "suspend": not_suspended,
        "jobTemplate": job_template,
    },
    required=["schedule", "jobTemplate"],
)


def fixed_scale(plain: Rule) -> Rule:
    """A group whose written count lies within its bounds: a controller would move it there, past what was counted."""

    def check(value: Any, place: Place) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            count = rebuilt.get("replicas", 1)
            least, most = rebuilt.get("minReplicas", 0), rebuilt.get("maxReplicas", count)
            if not least <= count <= most:
                message = f"{count} replicas are not between {least} and {most}."
                place.at("replicas").refuse("out_of_range", message)
        return rebuilt

    return check


def selecting(plain: Rule) -> Rule:
    """A spec whose selector must find the pods of its own template."""

    def check(value: Any, place: Place) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            _refuse_blind_selector(rebuilt, place)
        return rebuilt

    return check


def _refuse_blind_selector(spec: Mapping[str, Any], place: Place) -> None:
    wanted = spec.get("selector", {}).get("matchLabels", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    for key, value in wanted.items():
        if labels.get(key) != value:
            where = place.at("template").at("metadata").at("labels").at(key)
            where.refuse("selector_mismatch", f"The selector wants {key}={value} here.", (value,))
    if "matchLabels" in spec.get("selector", {}) and not wanted:
        place.at("selector").at("matchLabels").refuse("required", "A selector names at least one label of its pods.")


_served = template(pod_spec(restart=("Always",)))
_APPS: Final[dict[str, Rule]] = {
    "replicas": REPLICAS,
    "selector": match_labels,
    "template": _served,
    "minReadySeconds": integer(),
}
_ROLLING = table({"maxSurge": amount_or_share, "maxUnavailable": amount_or_share})


def _updating(plain: Rule) -> Rule:
    """A Deployment that can be rolled out, and in time."""

    def check(value: Any, place: Place) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            _refuse_standstill(rebuilt, place)
        return rebuilt

    return check


def _refuse_standstill(spec: Mapping[str, Any], place: Place) -> None:
    strategy = spec.get("strategy", {})
    rolling = strategy.get("rollingUpdate", {})
    where = place.at("strategy").at("rollingUpdate")
    if strategy.get("type") == "Recreate" and "rollingUpdate" in strategy:
        where.refuse("forbidden_field", "Recreate ends every pod first: leave rollingUpdate out.")
    elif all(rolling.get(name) in {0, "0%"} for name in ("maxSurge", "maxUnavailable")):
        where.refuse("bad_value", "With neither a pod more nor a pod less nothing can be rolled out.")
    if spec.get("minReadySeconds", 0) >= spec.get("progressDeadlineSeconds", 600):
        message = "A pod would be late before it counts as ready: progressDeadlineSeconds (600 if unset) must be more."
        place.at("minReadySeconds").refuse("out_of_range", message)


deployment: Rule = _updating(
    selecting(
        table(
            {
                **_APPS,
                "strategy": table({"type": choice("Recreate", "RollingUpdate"), "rollingUpdate": _ROLLING}),
                "revisionHistoryLimit": integer(0, 100),
                "progressDeadlineSeconds": integer(1),
                "paused": only(allowed=False, why="A workload is stopped and resumed by Rung."),
            },
            required=["selector", "template"],
        )
    )
)
replica_set: Rule = selecting(table(_APPS, required=["selector", "template"]))
stateful_set: Rule = selecting(
    table(
        {
            **_APPS,
            "template": template(pod_spec(restart=("Always",), claims_elsewhere=True)),
            "serviceName": dns_label,
            "podManagementPolicy": choice("OrderedReady", "Parallel"),
            "updateStrategy": table({"type": choice("RollingUpdate", "OnDelete")}),
            "revisionHistoryLimit": integer(0, 100),
            "volumeClaimTemplates": listing(claim_template, 10),
        },
        required=["selector", "template"],
    )
)

SPECS: Final[dict[str, Rule]] = {
    "Pod": pod_spec(),
    "Job": job_spec,
    "CronJob": cron_job,
    "Deployment": deployment,
    "ReplicaSet": replica_set,
    "StatefulSet": stateful_set,
}
