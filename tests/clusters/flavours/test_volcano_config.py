"""What a cluster's own configuration of Volcano means: for admins, for forecasts, and for what is promised."""

import json

import pytest

from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano_config import (
    ANYWHERE,
    ASSUMED,
    ASSUMED_DOMAINS,
    ENQUEUE,
    GANG_LIMITS,
    KEY,
    NO_CAPACITY,
    NO_DOMAINS,
    NO_GANG,
    NO_HIERARCHY,
    NO_PREEMPT,
    NO_PRIORITY,
    NO_RECLAIM,
    ONLY_ABOVE,
    RECOMMENDED,
    UNREAD,
    admin_warnings,
    domain_warnings,
    exemptions,
    facts_of,
    forecast_warnings,
    ignores_domains,
)
from clusters.flavours.volcano_guarantees import guarantees_of
from clusters.ports.flavour import Facts
from clusters.ports.gateway import Manifest
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause, EvictionExemptions
from tests.support.repository import ROOT

BOTH = EvictionExemptions(frozenset({Cause.PREEMPT, Cause.RECLAIM}))
NEAR = "network-topology-aware"
PLUGINS = ("priority", "gang, enablePreemptable: false", "capacity, enableHierarchy: true", NEAR)


def conf(text: object) -> Manifest:
    return {"kind": "ConfigMap", "data": {KEY: text}}


def facts(actions: str = "allocate, preempt, reclaim, backfill", *plugins: str) -> Facts:
    """As they come back from a database."""
    listed = ", ".join(f"{{name: {each}}}" for each in plugins or PLUGINS)
    found: Facts = json.loads(json.dumps(facts_of(conf(f'actions: "{actions}"\ntiers: [{{plugins: [{listed}]}}]\n'))))
    return found


def kept(found: Facts) -> dict[str, str]:
    """What is promised otherwise than where nothing is missing."""
    full = {each.code: each for each in guarantees_of(facts())}
    return {each.code: str(each.enforced) for each in guarantees_of(found) if each != full[each.code]}


def test_one_that_has_everything_says_nothing_and_leaves_nothing_out() -> None:
    assert (admin_warnings(facts()), exemptions(facts())) == ((), NO_EXEMPTIONS)
    assert [forecast_warnings(facts(), each) for each in OutcomeKind] == [()] * len(OutcomeKind)
    assert not any(each.remedy for each in guarantees_of(facts()) if each.code == "over_quota_and_reclaim")


def test_the_recommended_one_is_that_of_the_lab_and_misses_nothing() -> None:
    assert facts_of(conf((ROOT / "lab" / "volcano.conf").read_text(encoding="utf-8"))) == RECOMMENDED
    assert admin_warnings(RECOMMENDED) == ()


def test_the_shipped_one_neither_preempts_nor_reclaims() -> None:
    shipped = facts("enqueue, allocate, backfill", "priority", "gang, enablePreemptable: false", "proportion")
    assert admin_warnings(shipped) == (NO_PREEMPT, NO_RECLAIM, ENQUEUE, NO_CAPACITY, NO_DOMAINS)
    assert exemptions(shipped) == BOTH
    assert "lacks the actions preempt and reclaim" in forecast_warnings(shipped, OutcomeKind.PENDING)[0]
    assert kept(shipped) == {
        "priority_inside_project": "partly",
        "over_quota_and_reclaim": "no",
        "department_limit": "partly",
        "topology": "no",
        "min_runtime": "no",
    }


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        pytest.param(NEAR, "", id="as it comes"),
        pytest.param(f"{NEAR}, enabledHyperNodeGradient: true", "", id="switched on"),
        pytest.param(f"{NEAR}, enabledHyperNodeGradient: false", ANYWHERE, id="switched off"),
        pytest.param("binpack", ANYWHERE, id="none"),
    ],
)
def test_gangs_are_kept_in_one_domain_by_one_plugin_alone(plugin: str, why: str) -> None:
    found = facts("allocate, preempt, reclaim", *PLUGINS[:3], plugin)
    assert (ignores_domains(found), admin_warnings(found)) == (why, (NO_DOMAINS,) if why else ())
    assert kept(found) == ({"topology": "no"} if why else {})
    assert domain_warnings(found) == ()


@pytest.mark.parametrize(("action", "other"), [(Cause.PREEMPT, Cause.RECLAIM), (Cause.RECLAIM, Cause.PREEMPT)])
def test_an_action_that_is_missing_alone_is_named_alone(action: Cause, other: Cause) -> None:
    found = facts(f"allocate, {other}, backfill")
    assert exemptions(found) == EvictionExemptions(frozenset({action}))
    (said,) = forecast_warnings(found, OutcomeKind.PENDING)
    assert f"lacks the action {action}." in said
    assert forecast_warnings(found, OutcomeKind.PLACED) == ()
    assert len(kept(found)) == 1


def test_capacity_without_hierarchy_leaves_departments_out() -> None:
    found = facts("allocate, preempt, reclaim", "priority", "gang, enablePreemptable: false", "capacity", NEAR)
    assert (admin_warnings(found), kept(found)) == ((NO_HIERARCHY,), {"department_limit": "partly"})


@pytest.mark.parametrize("switch", ["gang", "gang, enablePreemptable: true", "gang, enablePreemptable: 0"])
def test_a_gang_plugin_that_is_asked_about_preemption_keeps_every_minimum(switch: str) -> None:
    found = facts("allocate, preempt, reclaim", "priority", switch, "capacity, enableHierarchy: true", NEAR)
    assert admin_warnings(found) == (ONLY_ABOVE,)
    assert exemptions(found) == EvictionExemptions(below_minimum=True)
    assert (forecast_warnings(found, OutcomeKind.PENDING), forecast_warnings(found, OutcomeKind.PREEMPTS)) == (
        (GANG_LIMITS,),
        (),
    )
    assert kept(found) == {"priority_inside_project": "partly"}


def test_without_the_plugins_that_an_estimate_counts_on_it_is_said_to_be_doubtful() -> None:
    bare = facts("enqueue, allocate, preempt, reclaim", "proportion")
    assert admin_warnings(bare) == (ENQUEUE, NO_PRIORITY, NO_GANG, NO_CAPACITY, NO_DOMAINS)
    assert exemptions(bare) == NO_EXEMPTIONS
    doubts = forecast_warnings(bare, OutcomeKind.RECLAIMS)
    assert [each.removeprefix("This estimate is uncertain. ") for each in doubts] == [ENQUEUE, NO_PRIORITY, NO_CAPACITY]
    assert kept(bare)["gang"] == kept(bare)["priority_inside_project"] == "no"


def test_words_that_are_unknown_are_not_kept() -> None:
    found = facts("allocate, <script>, preempt", "priority, secret: true", "gang, enablePreemptable: no thanks", "evil")
    assert found == {"actions": ["allocate", "preempt"], "plugins": {"priority": {}, "gang": {}}}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(None, id="none"),
        pytest.param({"kind": "ConfigMap"}, id="no data"),
        pytest.param({"data": [KEY]}, id="a list for data"),
        pytest.param(conf(7), id="a number"),
        pytest.param(conf(""), id="empty"),
        pytest.param(conf("- a\n- b\n"), id="a list"),
        pytest.param(conf("actions: [allocate]\n"), id="a list of actions"),
        pytest.param(conf("tiers: []\n"), id="no actions"),
        pytest.param(conf("actions: &a x\ntiers: *a\n"), id="an alias"),
        pytest.param(conf("actions: !!python/object:os.system x\n"), id="a tag"),
        pytest.param(conf("actions: [" * 5000), id="deep"),
        pytest.param(conf("a: " + "x" * 300_000), id="long"),
    ],
)
def test_t25_what_cannot_be_read_is_assumed_to_be_as_shipped_and_says_so(found: Manifest | None) -> None:
    read = facts_of(found)
    assert (read, admin_warnings(read), exemptions(read)) == ({}, (UNREAD,), BOTH)
    assert (forecast_warnings(read, OutcomeKind.PENDING), domain_warnings(read)) == ((ASSUMED,), (ASSUMED_DOMAINS,))
    assert ignores_domains(read) == "", "nobody is refused for what nobody knows"
    said = {each.code: each.explanation for each in guarantees_of(read)}
    assert said["over_quota_and_reclaim"].startswith("Assumption: default configuration, because it cannot be read")


@pytest.mark.parametrize(
    "text",
    [
        "actions: allocate\ntiers: 7\n",
        "actions: allocate\ntiers: [7, {plugins: {}}, {plugins: [x, {name: [gang]}, {name: 7}]}]\n",
        "actions: allocate\ntiers: [{plugins: [{enablePreemptable: false}]}]\n",
    ],
)
def test_t25_plugins_of_another_shape_are_none(text: str) -> None:
    assert facts_of(conf(text)) == {"actions": ["allocate"], "plugins": {}}


def test_every_promise_is_still_made() -> None:
    codes = [each.code for each in flavour_for("volcano").guarantees()]
    assert [each.code for each in guarantees_of({})] == codes
