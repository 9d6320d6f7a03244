"""What the API server refuses ends in its words, with the field it names, and a retry works once it is mended."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from clusters.ports.gateway import Kind, Manifest
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import job, spec_of
from tests.faults.rig import LOW, Rig
from tests.real.product import fresh
from tests.support.kube import KubeError
from tests.support.processes import eventually
from workloads.lifecycle.services.actions import retry
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import ApplyFailure, failure_of, object_name
from workloads.submission.services import submit

POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)


@pytest.fixture
def project(rig: Rig) -> Project:
    """A project whose namespace is in the cluster."""
    found = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    return found


def submitted(rig: Rig, project: Project) -> Workload:
    """A workload that no worker has applied yet."""
    return submit(spec=spec_of(job(), namespace=project.namespace, **LOW), project=project, actor=SYSTEM)


def plain_job(name: str, namespace: str) -> Manifest:
    """A Job that is not Rung's."""
    container = {"name": "main", "image": "ghcr.io/team/train:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def failure_after_two_tries(rig: Rig, workload: Workload) -> ApplyFailure:
    """The first refusal is tried again, the second ends the workload."""
    rig.apply(workload)
    assert fresh(workload).phase == Phase.CREATING
    rig.apply(workload)
    assert fresh(workload).phase == Phase.FAILED
    failure = failure_of(fresh(workload))
    assert failure is not None
    return failure


def test_a_name_that_a_foreign_object_has_is_named_and_free_for_a_retry(rig: Rig, project: Project) -> None:
    workload = submitted(rig, project)
    foreign = rig.admin.create(plain_job(object_name(workload), project.namespace))
    failure = failure_after_two_tries(rig, workload)
    assert "exists and does not belong to this workload" in failure.message
    assert failure.pointer == "/metadata/name"
    ref = rig.admin.ref(foreign)
    assert rig.admin.must(ref)["metadata"]["uid"] == foreign["metadata"]["uid"]
    rig.admin.delete(ref, grace=0)
    rig.admin.wait_gone(ref)
    retry(workload=fresh(workload), actor=SYSTEM)
    rig.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)


def test_what_admission_denies_fails_in_its_words_and_runs_after_a_retry(rig: Rig, project: Project) -> None:
    workload = submitted(rig, project)
    with denied(rig, project, "no jobs on Mondays"):
        assert "no jobs on Mondays" in failure_after_two_tries(rig, workload).message
    retry(workload=fresh(workload), actor=SYSTEM)
    rig.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)


@contextmanager
def denied(rig: Rig, project: Project, message: str) -> Iterator[None]:
    """A policy of the cluster's admin denies Jobs in the project's namespace; it is in force inside the block only."""
    name = f"deny-{rig.mark}"
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "one", "expression": f"request.namespace == '{project.namespace}'"}],
        "validations": [{"expression": "false", "message": message}],
    }
    made = [
        rig.admin.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec})
        for kind, spec in ((POLICY, policy), (BINDING, {"policyName": name, "validationActions": ["Deny"]}))
    ]
    eventually(lambda: is_denied(rig, project))
    try:
        yield
    finally:
        for each in reversed(made):
            rig.admin.delete(rig.admin.ref(each))
        eventually(lambda: not is_denied(rig, project))


def is_denied(rig: Rig, project: Project) -> bool:
    """Would a Job be refused now?"""
    with suppress(KubeError):
        probe = plain_job("probe", project.namespace)
        rig.admin.call("POST", f"/apis/batch/v1/namespaces/{project.namespace}/jobs?dryRun=All", probe)
        return False
    return True
