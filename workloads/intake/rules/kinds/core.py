"""Kinds that every API server serves: Pod, Job, CronJob with its schedule, and the apps group."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from zoneinfo import available_timezones

from portal.kit.security.strict_json import visible
from workloads.intake.rules.environment import claim_template
from workloads.intake.rules.pods import match_labels, pod_metadata, pod_spec, template
from workloads.intake.rules.scalars import dns_label
from workloads.intake.rules.values import ABSENT, Location, Rule, choice, either, integer, listing, only, table, text

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Each field: its name, its lowest and highest value, and the words for values.
FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 6, DAYS),
)
WORDS: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_PART: Final = re.compile(r"(?P<first>\*|\?|[a-z0-9]+)(?:-(?P<last>[a-z0-9]+))?(?:/(?P<step>[1-9][0-9]{0,3}))?")
_written = text(100, r"[-0-9A-Za-z*/,?@ ]+", "a cron schedule such as 0 3 * * *", shortest=1)
_zone = text(64, r"[A-Za-z0-9_+/-]+", "a time zone such as Europe/Paris")


def schedule(value: Any, place: Location) -> Any:
    """Five fields, or a word such as @daily."""
    written = _written(value, place)
    if written is ABSENT or written in WORDS:
        return written
    parts = written.split()
    if len(parts) != len(FIELDS):
        return place.refuse(
            "bad_schedule", f"A schedule must have five fields such as 0 3 * * *, not {len(parts)}.", WORDS
        )
    for given, (name, least, most, words) in zip(parts, FIELDS, strict=True):
        if not all(_fits(each, least, most, words) for each in given.lower().split(",")):
            return place.refuse("bad_schedule", f"{visible(given)!r} is not a {name} from {least} to {most}.")
    return written


def time_zone(value: Any, place: Location) -> Any:
    """A zone of the time zone database, by its exact name."""
    name = _zone(value, place)
    known = _zones()
    if name is ABSENT or not known or name in known:
        return name
    return place.refuse("bad_time_zone", f"{visible(name)!r} is not a time zone such as Europe/Paris.")


@cache
def _zones() -> frozenset[str]:
    """Empty where the machine has no such database: then the API server judges."""
    return frozenset(available_timezones())


def _fits(part: str, least: int, most: int, words: tuple[str, ...]) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        return False
    if found["first"] in "*?":
        return found["last"] is None
    first = _number(found["first"], least, words)
    last = _number(found["last"], least, words) if found["last"] else first
    return first is not None and last is not None and least <= first <= last <= most


def _number(written: str, least: int, words: tuple[str, ...]) -> int | None:
    if written in words:
        return words.index(written) + least
    return int(written) if written.isdecimal() and len(written) < 4 else None


REPLICAS: Final = integer(0, 10_000)
MOST_COMPLETIONS: Final = 100_000
RUN_ONCE: Final = ("Never", "OnFailure")
not_suspended: Final = only(allowed=False, why="Rung stops and resumes workloads.")
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


def job_spec(value: Any, place: Location) -> Any:
    """A Job whose completions go together: an index needs a count, a limit per index needs an index."""
    rebuilt = _job_spec(value, place)
    if rebuilt is not ABSENT:
        _check_indexes(rebuilt, place)
    return rebuilt


def _check_indexes(job: Mapping[str, Any], place: Location) -> None:
    indexed = job.get("completionMode") == "Indexed"
    if indexed and "completions" not in job:
        place.at("completions").refuse("required", "An Indexed job needs completions.")
    if "maxFailedIndexes" in job and "backoffLimitPerIndex" not in job:
        place.at("backoffLimitPerIndex").refuse("required", "maxFailedIndexes requires backoffLimitPerIndex.")
    if job.get("maxFailedIndexes", 0) > job.get("completions", MOST_COMPLETIONS):
        place.at("maxFailedIndexes").refuse("out_of_range", "Must not be more than completions.")
    if "backoffLimitPerIndex" in job:
        if not indexed:
            place.at("completionMode").refuse("bad_value", "A limit per index requires an Indexed job.", ("Indexed",))
        if job.get("template", {}).get("spec", {}).get("restartPolicy") != "Never":
            where = place.at("template").at("spec").at("restartPolicy")
            where.refuse("bad_value", "A limit per index requires restartPolicy: Never.", ("Never",))


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

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            count = rebuilt.get("replicas", 1)
            least, most = rebuilt.get("minReplicas", 0), rebuilt.get("maxReplicas", count)
            if not least <= count <= most:
                message = f"replicas must be between {least} and {most}, not {count}."
                place.at("replicas").refuse("out_of_range", message)
        return rebuilt

    return check


def selecting(plain: Rule) -> Rule:
    """A spec whose selector must find the pods of its own template."""

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            _check_selector(rebuilt, place)
        return rebuilt

    return check


def _check_selector(spec: Mapping[str, Any], place: Location) -> None:
    wanted = spec.get("selector", {}).get("matchLabels", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    for key, value in wanted.items():
        if labels.get(key) != value:
            where = place.at("template").at("metadata").at("labels").at(key)
            where.refuse("selector_mismatch", f"The selector requires {key}={value} here.", (value,))
    if "matchLabels" in spec.get("selector", {}) and not wanted:
        place.at("selector").at("matchLabels").refuse(
            "required", "The selector must match at least one label of the pods."
        )


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

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT:
            _check_progress(rebuilt, place)
        return rebuilt

    return check


def _check_progress(spec: Mapping[str, Any], place: Location) -> None:
    strategy = spec.get("strategy", {})
    rolling = strategy.get("rollingUpdate", {})
    where = place.at("strategy").at("rollingUpdate")
    if strategy.get("type") == "Recreate" and "rollingUpdate" in strategy:
        where.refuse("forbidden_field", "Remove rollingUpdate: it cannot be combined with Recreate.")
    elif all(rolling.get(name) in {0, "0%"} for name in ("maxSurge", "maxUnavailable")):
        where.refuse("bad_value", "maxSurge and maxUnavailable must not both be 0.")
    if spec.get("minReadySeconds", 0) >= spec.get("progressDeadlineSeconds", 600):
        message = "progressDeadlineSeconds (default 600) must be greater than minReadySeconds."
        place.at("minReadySeconds").refuse("out_of_range", message)


deployment: Rule = _updating(
    selecting(
        table(
            {
                **_APPS,
                "strategy": table({"type": choice("Recreate", "RollingUpdate"), "rollingUpdate": _ROLLING}),
                "revisionHistoryLimit": integer(0, 100),
                "progressDeadlineSeconds": integer(1),
                "paused": only(allowed=False, why="Rung stops and resumes workloads."),
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
