"""What a controller could not run is refused with its field: schedules, zones, indexes and rollouts."""

from typing import Any

import pytest

from tests.workloads.intake.manifests import VALID, problems_of


def changed(kind: str, **spec: Any) -> dict[str, Any]:
    body = VALID[kind]()
    body["spec"].update(spec)
    return body


@pytest.mark.parametrize(
    "written", ["0 3 * * *", "*/5 0-6 1,15 JAN-MAR mon", "0 0 ? * 6", "@daily", "5/10 * * * *", "0  3 * * *"]
)
def test_a_schedule_of_cron_is_taken(written: str) -> None:
    assert problems_of(changed("CronJob", schedule=written)) == {}


@pytest.mark.parametrize(
    "written", ["* *", "60 * * * *", "0 24 * * *", "* * 0 * *", "* * * 13 *", "5-1 * * * *", "*/0 * * * *", "@reboot"]
)
def test_a_schedule_that_never_comes_is_refused(written: str) -> None:
    assert "/spec/schedule" in problems_of(changed("CronJob", schedule=written))


@pytest.mark.parametrize(("zone", "taken"), [("Europe/Paris", True), ("Nowhere/City", False), ("Local", False)])
def test_a_time_zone_is_one_of_the_database(zone: str, taken: bool) -> None:
    assert ("/spec/timeZone" not in problems_of(changed("CronJob", timeZone=zone))) is taken


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"completionMode": "Indexed"}, "completions"),
        ({"backoffLimitPerIndex": 1}, "completionMode"),
        ({"maxFailedIndexes": 1}, "backoffLimitPerIndex"),
        ({"completions": 2, "maxFailedIndexes": 3}, "maxFailedIndexes"),
    ],
)
def test_indexes_of_a_job_go_together(spec: dict[str, Any], field: str) -> None:
    assert f"/spec/{field}" in problems_of(changed("Job", **spec))


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"strategy": {"type": "Recreate", "rollingUpdate": {}}}, "/spec/strategy/rollingUpdate"),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}, "/spec/strategy/rollingUpdate"),
        ({"minReadySeconds": 600}, "/spec/minReadySeconds"),
    ],
)
def test_a_deployment_can_be_rolled_out(spec: dict[str, Any], pointer: str) -> None:
    assert pointer in problems_of(changed("Deployment", **spec))
