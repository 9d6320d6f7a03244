"""Kueue's own configuration: which kinds it manages, and what is said where it cannot be read."""

from typing import Any

import pytest
import yaml

from clusters.flavours.kueue import Kueue
from clusters.flavours.kueue_capabilities import (
    FAIR_SHARING_ASSUMED,
    GUARANTEES,
    IMPATIENT,
    INTEGRATIONS,
    KEY,
    NARROWED,
    PROPOSALS,
    RANDOM,
    UNREAD,
    admin_warnings,
    assumption,
    facts_of,
    fair_sharing,
    forecast_warnings,
    guarantees_of,
    kind_warnings,
    of_everything,
    unmanaged,
)
from clusters.ports.flavour import Facts
from clusters.ports.gateway import Manifest
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import FairSharingStrategy

BOTH = tuple(FairSharingStrategy)
V1BETA1, V1BETA2 = "config.kueue.x-k8s.io/v1beta1", "config.kueue.x-k8s.io/v1beta2"
SHIPPED = (
    *("batch/job", "kubeflow.org/mpijob", "ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"),
    *("jobset.x-k8s.io/jobset", "workload.codeflare.dev/appwrapper", "trainer.kubeflow.org/trainjob"),
    *("pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"),
)


def config_map(**fields: Any) -> Manifest:
    text = yaml.safe_dump({"apiVersion": V1BETA2, "kind": "Configuration", **fields})
    return {"data": {KEY: text}}


def configured(*frameworks: str, **fields: Any) -> Facts:
    return facts_of(config_map(integrations={"frameworks": list(frameworks)}, **fields))


def test_a_kind_whose_integration_is_off_would_run_outside_every_quota() -> None:
    jobs = configured("batch/job", "jobset.x-k8s.io/jobset")
    assert [kind for kind in ("Job", "CronJob", "JobSet") if unmanaged(jobs, kind)] == []
    assert unmanaged(jobs, "Deployment") == (
        "the integration deployment is disabled in Kueue's configuration, so a Deployment would run outside all "
        "quotas. A platform admin can enable it (ConfigMap kueue-system/kueue-manager-config, "
        "controller_manager_config.yaml)"
    )
    assert "the integration pod is disabled" in unmanaged(jobs, "Workflow"), (
        "its pods would have to be queued one by one"
    )


def test_as_shipped_most_of_kubeflow_is_off() -> None:
    kinds = ("PyTorchJob", "TFJob", "MPIJob", "Deployment", "Pod", "Workflow")
    assert [kind for kind in kinds if unmanaged(configured(*SHIPPED), kind)] == ["PyTorchJob", "TFJob"]


def test_pods_that_a_deployment_brings_along_are_no_bare_pods() -> None:
    facts = configured("deployment")
    assert unmanaged(facts, "Deployment") == ""
    assert unmanaged(facts, "Pod")


def test_what_another_controller_manages_for_kueue_is_managed() -> None:
    named = {"frameworks": ["batch/job"], "externalFrameworks": ["PipelineRun.v1.tekton.dev"]}
    facts = facts_of(config_map(integrations=named))
    assert unmanaged(facts, "PipelineRun") == ""
    assert unmanaged(facts, "TaskRun")


@pytest.mark.parametrize("integrations", [{}, None, {"frameworks": []}, {"frameworks": "all"}, ["batch/job"]])
def test_where_it_names_nothing_it_manages_jobs_alone(integrations: object) -> None:
    facts = facts_of(config_map(integrations=integrations))
    assert facts["integrations"] == ["batch/job"]


def test_admins_are_warned_of_what_is_off() -> None:
    (said,) = admin_warnings(configured(*(each for each in INTEGRATIONS if each != "deployment")))
    assert "(deployment). Rung rejects workloads of the kinds Deployment." in said
    (said,) = admin_warnings(configured(*(each for each in INTEGRATIONS if each != "pod")))
    assert "Pod, all kinds that Kueue does not support" in said
    assert admin_warnings(configured(*INTEGRATIONS)) == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"waitForPodsReady": {"timeout": "5m"}}, (IMPATIENT,), id="no patience with pods"),
        pytest.param({"managedJobsNamespaceSelector": {"matchLabels": {"a": "b"}}}, (NARROWED,), id="some namespaces"),
        pytest.param({"managedJobsNamespaceSelector": {"matchExpressions": 7}}, (NARROWED,), id="no selector at all"),
    ],
)
def test_admins_are_warned_of_what_the_model_leaves_out(fields: dict[str, Any], said: tuple[str, ...]) -> None:
    assert admin_warnings(configured(*INTEGRATIONS, **fields)) == said


def test_a_selector_that_spares_the_systems_namespaces_leaves_out_no_project() -> None:
    key, values = "kubernetes.io/metadata.name", ["kube-system", "kueue-system"]
    usual = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}]}
    assert admin_warnings(configured(*INTEGRATIONS, managedJobsNamespaceSelector=usual)) == ()
    usual["matchExpressions"][0]["values"] = [*values, "runai-vision"]
    assert admin_warnings(configured(*INTEGRATIONS, managedJobsNamespaceSelector=usual)) == (NARROWED,)


@pytest.mark.parametrize(
    ("fields", "strategies"),
    [
        pytest.param({"fairSharing": {}}, BOTH, id="on"),
        pytest.param({"fairSharing": {"preemptionStrategies": []}}, BOTH, id="on, without strategies"),
        pytest.param({"fairSharing": {"preemptionStrategies": [BOTH[1].value]}}, BOTH[1:], id="with one strategy"),
        pytest.param(
            {"fairSharing": {"preemptionStrategies": ["Other", 7]}}, BOTH, id="with strategies not known here"
        ),
        pytest.param({"fairSharing": {"enable": False}}, (), id="off"),
        pytest.param({"apiVersion": V1BETA1, "fairSharing": {}}, (), id="off by default"),
        pytest.param({"apiVersion": V1BETA1, "fairSharing": {"enable": True}}, BOTH, id="on in the old version"),
        pytest.param({}, (), id="not named"),
    ],
)
def test_the_strategies_of_fair_sharing_are_read(fields: dict[str, Any], strategies: tuple[str, ...]) -> None:
    assert fair_sharing(configured(*INTEGRATIONS, **fields)) == strategies


def test_configurations_to_propose_differ_in_fair_sharing_alone_and_are_known() -> None:
    classical, fair = PROPOSALS["classical"], PROPOSALS["fair-sharing"]
    assert (fair_sharing(classical), fair_sharing(fair)) == ((), tuple(FairSharingStrategy))
    assert {**classical, "fair": fair["fair"]} == fair
    assert [assumption(each) for each in (classical, fair)] == ["", ""]


@pytest.mark.parametrize("kind", [OutcomeKind.RECLAIMS, OutcomeKind.PREEMPTS_AND_RECLAIMS])
def test_under_fair_sharing_who_takes_from_others_is_told_that_ties_are_random(kind: OutcomeKind) -> None:
    fair = configured(*INTEGRATIONS, fairSharing={})
    assert (forecast_warnings(fair, kind), forecast_warnings(fair, OutcomeKind.PLACED)) == ((RANDOM,), ())
    assert forecast_warnings(configured(*INTEGRATIONS), kind) == ()


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"data": None},
        {"data": {KEY: 7}},
        {"data": {KEY: ""}},
        {"data": {KEY: "a: &x [*x]"}},
        {"data": {KEY: "- a"}},
        {"data": {KEY: "kind: Deployment"}},
        {"data": {KEY: "x" * 300_000}},
    ],
)
def test_what_cannot_be_read_is_not_known_and_nothing_is_refused(found: Manifest | None) -> None:
    facts = facts_of(found)
    assert (facts, unmanaged(facts, "Deployment"), admin_warnings(facts)) == ({}, "", (UNREAD,))
    (said,) = kind_warnings(facts, "Deployment")
    assert said.startswith("Assumption: Kueue manages Deployment, because its configuration is unknown.")
    kept = {each.code: each for each in guarantees_of(facts)}
    assert kept["quota_per_node_pool"].enforced == "partly"
    assert "Kueue's configuration is unknown." in kept["quota_per_node_pool"].explanation


def test_what_other_queues_say_tells_nothing_of_a_configuration_that_was_not_read() -> None:
    facts = {"other_queues": {"members": 0, "lending": False, "checks": []}}
    assert (unmanaged(facts, "Deployment"), admin_warnings(facts)) == ("", (UNREAD,))
    for_waiting, for_placed = (forecast_warnings(facts, each) for each in (OutcomeKind.PENDING, OutcomeKind.PLACED))
    assert (for_waiting, for_placed) == ((FAIR_SHARING_ASSUMED,), ())
    assert kind_warnings(facts, "Deployment") == kind_warnings({}, "Deployment")
    assert guarantees_of(facts) == guarantees_of({})


def test_quotas_are_enforced_as_far_as_kinds_are_managed() -> None:
    assert guarantees_of(facts_of(of_everything())) == GUARANTEES
    kept = {each.code: each for each in guarantees_of(configured("batch/job"))}
    assert kept["department_limit"].enforced == "partly"
    assert "Deployment" in kept["department_limit"].explanation


def test_the_account_may_read_that_one_object() -> None:
    by = Kueue().traits.configuration
    assert by is not None
    assert (by.ref.kind.plural, by.ref.namespace, by.ref.name) == ("configmaps", "kueue-system", "kueue-manager-config")
