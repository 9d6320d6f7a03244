"""Where Volcano's plugin cdp has to stand that young work is left alone, and what is said of it where it does not."""

import json

import pytest

from clusters.flavours.volcano_config import (
    KEY,
    NOT_SPARED,
    OPENED,
    admin_warnings,
    conf_of,
    exemptions,
    facts_of,
    forecast_warnings,
)
from clusters.flavours.volcano_guarantees import LAST, guarantees_of
from clusters.ports.flavour import Facts, Guarantee
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, NO_EXEMPTIONS, Cause, EvictionExemptions

PREEMPT, RECLAIM = (Cause.PREEMPT,), (Cause.RECLAIM,)
BOTH = (*PREEMPT, *RECLAIM)
FIRST = ("priority", "gang, enablePreemptable: false", "conformance")
SECOND = ("predicates", "capacity, enableHierarchy: true", "network-topology-aware")
QUIET = "cdp, enablePreemptable: false"


def facts(*tiers: tuple[str, ...], actions: str = "allocate, preempt, reclaim, backfill") -> Facts:
    """As they come back from a database."""
    listed = "".join(f"- plugins: [{', '.join(f'{{name: {each}}}' for each in tier)}]\n" for tier in tiers)
    text = f'actions: "{actions}"\ntiers:\n{listed}'
    found: Facts = json.loads(json.dumps(facts_of({"data": {KEY: text}})))
    return found


def promised(found: Facts, code: str = "min_runtime") -> Guarantee:
    return {each.code: each for each in guarantees_of(found)}[code]


GOOD = facts((*FIRST, "cdp"), (*SECOND, QUIET))


def test_last_in_both_tiers_it_spares_protected_work_and_nothing_is_to_be_done() -> None:
    assert (admin_warnings(GOOD), exemptions(GOOD)) == ((), EvictionExemptions(inside_min_runtime=MIN_RUNTIME_CAUSES))
    assert (promised(GOOD).enforced, promised(GOOD).remedy) == ("partly", "")


@pytest.mark.parametrize(
    ("tiers", "spared", "opened"),
    [
        pytest.param([(*FIRST, "cdp"), SECOND], PREEMPT, (), id="the second tier takes back whom the first spared"),
        pytest.param([FIRST, (*SECOND, QUIET)], (), (), id="the first tier decides without it"),
        pytest.param([(*FIRST, "cdp"), (*SECOND, "cdp")], BOTH, PREEMPT, id="alone in the second tier"),
        pytest.param([(*FIRST, QUIET), (*SECOND, QUIET)], RECLAIM, (), id="switched off for preempt"),
        pytest.param([("cdp", *FIRST), (QUIET, *SECOND)], (), (), id="first of three"),
        pytest.param([(*FIRST, *SECOND, "cdp")], BOTH, (), id="one tier"),
        pytest.param([("priority", "cdp", "drf"), ("capacity", "cdp")], RECLAIM, PREEMPT, id="one after it"),
        pytest.param([("cdp",), FIRST, (*SECOND, QUIET)], (), BOTH, id="alone before all others"),
        pytest.param([("conformance", "cdp"), (*FIRST, "cdp"), (*SECOND, QUIET)], BOTH, BOTH, id="with a lenient one"),
        pytest.param([("cdp", *FIRST[:2]), (QUIET, *SECOND)], BOTH, (), id="first of two"),
    ],
)
def test_whom_it_spares_hangs_on_every_tier_that_is_asked(
    tiers: list[tuple[str, ...]], spared: tuple[Cause, ...], opened: tuple[Cause, ...]
) -> None:
    found = facts(*tiers)
    conf = conf_of(found)
    assert conf is not None
    assert (conf.spares, conf.opened) == (spared, opened)
    assert exemptions(found).inside_min_runtime == set(spared)


@pytest.mark.parametrize(
    ("found", "actions"),
    [
        pytest.param(facts((*FIRST, "cdp"), SECOND), "reclaim", id="not in the second tier"),
        pytest.param(facts(FIRST, (*SECOND, QUIET)), "preempt and reclaim", id="not in the first"),
        pytest.param(facts(FIRST, SECOND, (QUIET,), actions="allocate, reclaim"), "reclaim", id="no preempt at all"),
    ],
)
def test_one_that_does_not_spare_is_warned_of_and_leaves_it_to_rung(found: Facts, actions: str) -> None:
    assert NOT_SPARED.format(actions=actions) in admin_warnings(found)
    told = promised(found)
    assert (told.enforced, told.remedy) == ("partly", LAST)
    assert (
        f"does not protect the minimum runtime from the action {actions}, so Rung defers workloads that would"
        in told.explanation
    )


def test_an_action_that_is_not_there_takes_no_protected_pod() -> None:
    found = facts((*FIRST, "cdp"), SECOND, actions="allocate, preempt")
    assert not [each for each in admin_warnings(found) if "cdp" in each]
    assert promised(found).enforced == "partly"


def test_one_that_decides_alone_is_warned_of_since_priority_and_quota_count_no_more() -> None:
    found = facts((*FIRST, "cdp"), (*SECOND, "cdp"))
    assert admin_warnings(found) == (OPENED.format(actions="preempt"),)
    assert promised(found, "priority_inside_project").enforced == "no"
    assert promised(found).enforced == "partly"
    assert forecast_warnings(found, OutcomeKind.PREEMPTS) == (
        f"This estimate is uncertain. {OPENED.format(actions='preempt')}",
    )
    across = facts((*FIRST, "cdp"), SECOND, ("cdp, enablePreemptable: false",))
    assert promised(across, "over_quota_and_reclaim").enforced == "no"


@pytest.mark.parametrize(
    ("found", "source", "enforced"),
    [
        pytest.param(
            facts(FIRST, SECOND), "According to its configuration on this cluster.", "partly", id="Rung defers"
        ),
        pytest.param({}, "Assumption: default configuration", "no", id="nobody knows whom it evicts"),
    ],
)
def test_without_it_protected_work_is_evicted_and_only_projects_with_a_rule_are_warned(
    found: Facts, source: str, enforced: str
) -> None:
    told = promised(found)
    assert (told.enforced, told.remedy) == (enforced, LAST)
    assert told.explanation.startswith(source)
    assert ("so Rung defers" in told.explanation) == (enforced == "partly")
    assert "Without the plugin cdp" in told.explanation
    assert not [each for each in admin_warnings(found) if "cdp" in each]
    assert not exemptions(found).inside_min_runtime


def test_what_was_kept_before_it_was_asked_for_is_read_as_without() -> None:
    older: Facts = {"actions": ["preempt", "reclaim"], "plugins": {"priority": {}, "capacity": {}}}
    assert "Without the plugin cdp" in promised(older).explanation
    assert exemptions(older) == NO_EXEMPTIONS
