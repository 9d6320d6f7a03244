"""Every row of the priority rules' table, from the request to the stored workload."""

import pytest

from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.factories.workloads import of_type
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.resolution import Request
from workloads.dictionary.services.changes import update_type
from workloads.dictionary.services.plans import plan_preset
from workloads.plans.services.plans import apply_plan
from workloads.state.models import Workload
from workloads.submission.services import submit

PRE, NON = "preemptible", "non-preemptible"
Row = tuple[str, Request, str, str, str, str]


def requested(
    explicit: str | None = None, label: str | None = None, explicit_pre: str | None = None, label_pre: str | None = None
) -> Request:
    """A request by source."""
    return Request(explicit, label, explicit_pre, label_pre)


ROWS = [
    pytest.param("PyTorchJob", requested(), "low 40 type", f"{PRE} type", set(), id="1 all defaults of a training"),
    pytest.param(
        "Job", requested(), "high 125 type", f"{NON} type", {"in_quota_only"}, id="2 all defaults of a plain Job"
    ),
    pytest.param(
        "PyTorchJob",
        requested("high"),
        "high 125 explicit",
        f"{NON} threshold",
        {"differs_from_type"},
        id="3 explicit priority above the threshold",
    ),
    pytest.param(
        "PyTorchJob", requested("medium"), "medium 80 explicit", f"{PRE} threshold", set(), id="4 explicit below it"
    ),
    pytest.param(
        "Job", requested("low"), "low 40 explicit", f"{PRE} threshold", {"differs_from_type"}, id="5 a Job made low"
    ),
    pytest.param(
        "Job",
        requested(label="low"),
        "low 40 label",
        f"{PRE} threshold",
        {"differs_from_type"},
        id="6 the same by label",
    ),
    pytest.param(
        "PyTorchJob",
        requested("low", "very-high"),
        "low 40 explicit",
        f"{PRE} threshold",
        None,
        id="7 form beats label",
    ),
    pytest.param(
        "PyTorchJob",
        requested(explicit_pre=NON),
        "low 40 type",
        f"{NON} explicit",
        {"never_evicted_but_last"},
        id="8 explicitly non-preemptible",
    ),
    pytest.param(
        "PyTorchJob", requested(label_pre=NON), "low 40 type", f"{NON} label", None, id="9 non-preemptible by label"
    ),
    pytest.param(
        "Job",
        requested(explicit_pre=PRE, label_pre=NON),
        "high 125 type",
        f"{PRE} explicit",
        None,
        id="10 explicit wins",
    ),
    pytest.param(
        "Job",
        requested("low", label_pre=NON),
        "low 40 explicit",
        f"{NON} label",
        {"label_beats_threshold"},
        id="11 label beats threshold",
    ),
    pytest.param(
        "PyTorchJob",
        requested("high", explicit_pre=PRE),
        "high 125 explicit",
        f"{PRE} explicit",
        {"threshold_disagrees"},
        id="12 high and preemptible",
    ),
    pytest.param(
        "PyTorchJob",
        requested(label="high", label_pre=PRE),
        "high 125 label",
        f"{PRE} label",
        None,
        id="13 both by label",
    ),
    pytest.param(
        "Job",
        requested("high"),
        "high 125 explicit",
        f"{NON} threshold",
        {"equals_type_default"},
        id="14 equal to the default, still explicit",
    ),
    pytest.param(
        "PyTorchJob",
        Request(pod_priority_class=(("/spec/priorityClassName", "high"),)),
        "high 125 pod template",
        f"{NON} threshold",
        {"differs_from_type"},
        id="23 the pods name a priority",
    ),
    pytest.param(
        "SPOTRequest",
        requested("medium"),
        "medium 80 explicit",
        f"{PRE} threshold",
        set(),
        id="18 a type without default",
    ),
]


def stored(workload: Workload) -> tuple[str, str]:
    """Both pairs as the row holds them."""
    workload.refresh_from_db()
    return (
        f"{workload.priority.name} {workload.priority_value} {workload.priority_source}",
        f"{workload.preemptibility} {workload.preemptibility_source}",
    )


@pytest.mark.parametrize(("type_name", "request_", "priority", "preemptibility", "warned"), ROWS)
def test_the_effective_pair_is_stored_with_its_sources(
    type_name: str,
    request_: Request,
    priority: str,
    preemptibility: str,
    warned: set[str] | None,
    llm_team: Project,
    as_bob: Actor,
) -> None:
    workload = submit(spec=of_type(type_name, request_), project=llm_team, actor=as_bob)
    assert stored(workload) == (priority, preemptibility)
    if warned is not None:
        assert {warning["code"] for warning in workload.warnings} == warned


@pytest.mark.parametrize(
    ("type_name", "request_", "field", "value"),
    [
        pytest.param("PyTorchJob", requested("low", "very-high"), "priority", "very-high", id="7 the label's priority"),
        pytest.param("Job", requested(None, None, PRE, NON), "preemptibility", NON, id="10 the label's preemptibility"),
        pytest.param(
            "PyTorchJob",
            Request(label_priority="medium", pod_priority_class=(("/spec/priorityClassName", "high"),)),
            "priority",
            "high",
            id="24 the pod template's priority",
        ),
    ],
)
def test_what_lost_is_stored_beside_it(
    type_name: str, request_: Request, field: str, value: str, llm_team: Project, as_bob: Actor
) -> None:
    workload = submit(spec=of_type(type_name, request_), project=llm_team, actor=as_bob)
    assert [(lost["field"], lost["value"]) for lost in workload.discarded] == [(field, value)]


@pytest.mark.parametrize(
    ("request_", "priority", "preemptibility"),
    [
        pytest.param(requested("low"), "low 40 explicit", f"{PRE} threshold", id="15 chosen: the threshold decides"),
        pytest.param(requested(), "low 40 type", f"{NON} type", id="16 not chosen: the type decides"),
    ],
)
def test_a_type_may_be_low_and_non_preemptible(
    request_: Request, priority: str, preemptibility: str, llm_team: Project, as_bob: Actor, as_admin: Actor
) -> None:
    type_ = WorkloadType.objects.get(name="PyTorchJob")
    update_type(workload_type=type_, priority="low", preemptibility=NON, actor=as_admin)
    workload = submit(spec=of_type("PyTorchJob", request_), project=llm_team, actor=as_bob)
    assert stored(workload) == (priority, preemptibility)


def test_row_22_a_value_of_exactly_100_is_non_preemptible(llm_team: Project, as_bob: Actor, as_admin: Actor) -> None:
    apply_plan(plan=plan_preset(preset="runai-legacy", actor=as_admin), actor=as_admin)
    workload = submit(spec=of_type("PyTorchJob", requested(label="build")), project=llm_team, actor=as_bob)
    assert stored(workload) == ("build 100 label", f"{NON} threshold")


@pytest.mark.parametrize(
    ("type_name", "request_", "code", "pointer"),
    [
        pytest.param("SPOTRequest", requested(), "priority_required", "/priority", id="17 nothing says a priority"),
        pytest.param(
            "Job",
            requested("low", "urgent"),
            "priority_unknown",
            "/metadata/labels/priorityClassName",
            id="19 an unknown label, also when it would lose",
        ),
        pytest.param(
            "Job",
            requested(label_pre="maybe"),
            "preemptibility_unknown",
            "/metadata/labels/kai.scheduler~1preemptibility",
            id="20 an unknown preemptibility",
        ),
        pytest.param(
            "Job",
            Request("low", pod_priority_class=(("/spec/template/spec/priorityClassName", "urgent"),)),
            "priority_unknown",
            "/spec/template/spec/priorityClassName",
            id="25 an unknown name in a pod template, also when it would lose",
        ),
        pytest.param("NVCF", requested("low"), "priority_fixed", "/priority", id="21 NVCF takes no choice"),
        pytest.param("NVCF", requested(), "not_submittable", "/kind", id="NVCF is not submitted here at all"),
    ],
)
def test_what_cannot_be_resolved_is_refused_at_its_field(
    type_name: str, request_: Request, code: str, pointer: str, llm_team: Project, as_bob: Actor
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        submit(spec=of_type(type_name, request_), project=llm_team, actor=as_bob)
    assert [(problem.code, problem.pointer) for problem in refusal.value.problems] == [(code, pointer)]
    assert not Workload.objects.exists()
