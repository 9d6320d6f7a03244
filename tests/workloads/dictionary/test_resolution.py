"""Effective priority and preemptibility, table by table, with the source of each."""

from dataclasses import replace

import pytest

from scheduling.model.preemptibility import Preemptibility
from tests.builders import RUNAI
from workloads.dictionary.rules.resolution import (
    Dictionary,
    Discarded,
    Effective,
    PolicyDefaults,
    PriorityEntry,
    Refusal,
    Request,
    Source,
    TypeDefaults,
    resolve,
)

PRE, SEMI, NON = Preemptibility.PREEMPTIBLE, Preemptibility.SEMI_PREEMPTIBLE, Preemptibility.NON_PREEMPTIBLE
EXPLICIT, LABEL, TYPE, THRESHOLD = Source.EXPLICIT, Source.LABEL, Source.TYPE, Source.THRESHOLD
POD_TEMPLATE, POINTER = Source.POD_TEMPLATE, "/spec/template/spec/priorityClassName"

PYTORCH = TypeDefaults("PyTorchJob", "low", PRE)
JOB = TypeDefaults("Job", "high", NON)
LOW_NON = TypeDefaults("Batch", "low", NON)
SPOT = TypeDefaults("SPOTRequest", None, None)
NVCF = TypeDefaults("NVCF function", "very-high", NON, fixed=True)

LEGACY = Dictionary(
    [
        PriorityEntry("train", 50),
        PriorityEntry("build", 100),
        PriorityEntry("high", 125),
        PriorityEntry("inference", 125, alias_of="high"),
        PriorityEntry("low", 40),
    ]
)


def ask(
    priority: str | None = None,
    label: str | None = None,
    preemptibility: str | None = None,
    preemptibility_label: str | None = None,
) -> Request:
    return Request(priority, label, preemptibility, preemptibility_label)


def pods_name(name: str, priority: str | None = None, label: str | None = None) -> Request:
    """A request whose pod template says `priorityClassName: <name>`."""
    return Request(priority, label, pod_priority_class=((POINTER, name),))


def effective(request: Request, defaults: TypeDefaults, dictionary: Dictionary = RUNAI) -> Effective:
    answer = resolve(request, defaults=defaults, dictionary=dictionary)
    assert isinstance(answer, Effective)
    return answer


def refusal(request: Request, defaults: TypeDefaults, dictionary: Dictionary = RUNAI) -> Refusal:
    answer = resolve(request, defaults=defaults, dictionary=dictionary)
    assert isinstance(answer, Refusal)
    return answer


@pytest.mark.parametrize(
    ("defaults", "request_", "value", "source", "preemptibility", "from_", "warning"),
    [
        pytest.param(PYTORCH, ask(), 40, TYPE, PRE, TYPE, None, id="1"),
        pytest.param(JOB, ask(), 125, TYPE, NON, TYPE, "in_quota_only", id="2"),
        pytest.param(PYTORCH, ask("high"), 125, EXPLICIT, NON, THRESHOLD, "differs_from_type", id="3"),
        pytest.param(PYTORCH, ask("medium"), 80, EXPLICIT, PRE, THRESHOLD, None, id="4"),
        pytest.param(JOB, ask("low"), 40, EXPLICIT, PRE, THRESHOLD, "differs_from_type", id="5"),
        pytest.param(JOB, ask(None, "low"), 40, LABEL, PRE, THRESHOLD, "differs_from_type", id="6"),
        pytest.param(PYTORCH, ask("low", "very-high"), 40, EXPLICIT, PRE, THRESHOLD, None, id="7"),
        pytest.param(PYTORCH, ask(None, None, NON), 40, TYPE, NON, EXPLICIT, "never_evicted_but_last", id="8"),
        pytest.param(PYTORCH, ask(None, None, None, NON), 40, TYPE, NON, LABEL, None, id="9"),
        pytest.param(JOB, ask(None, None, PRE, NON), 125, TYPE, PRE, EXPLICIT, None, id="10"),
        pytest.param(JOB, ask("low", None, None, NON), 40, EXPLICIT, NON, LABEL, "label_beats_threshold", id="11"),
        pytest.param(PYTORCH, ask("high", None, PRE), 125, EXPLICIT, PRE, EXPLICIT, "threshold_disagrees", id="12"),
        pytest.param(PYTORCH, ask(None, "high", None, PRE), 125, LABEL, PRE, LABEL, None, id="13"),
        pytest.param(JOB, ask("high"), 125, EXPLICIT, NON, THRESHOLD, "equals_type_default", id="14"),
        pytest.param(LOW_NON, ask("low"), 40, EXPLICIT, PRE, THRESHOLD, "differs_from_type", id="15"),
        pytest.param(LOW_NON, ask(), 40, TYPE, NON, TYPE, None, id="16"),
        pytest.param(SPOT, ask("medium"), 80, EXPLICIT, PRE, THRESHOLD, None, id="18"),
        pytest.param(PYTORCH, pods_name("high"), 125, POD_TEMPLATE, NON, THRESHOLD, "differs_from_type", id="23"),
        pytest.param(PYTORCH, pods_name("high", None, "medium"), 80, LABEL, PRE, THRESHOLD, None, id="24"),
        pytest.param(SPOT, pods_name("medium"), 80, POD_TEMPLATE, PRE, THRESHOLD, None, id="18, by its pods"),
    ],
)
def test_row_of_the_table(
    defaults: TypeDefaults,
    request_: Request,
    value: int,
    source: Source,
    preemptibility: Preemptibility,
    from_: Source,
    warning: str | None,
) -> None:
    found = effective(request_, defaults)
    assert (found.priority.value, found.priority_source) == (value, source)
    assert (found.preemptibility, found.preemptibility_source) == (preemptibility, from_)
    codes = {said.code for said in found.warnings}
    assert codes == ({warning} if warning else set())


def test_row_22_exactly_one_hundred_is_non_preemptible() -> None:
    found = effective(ask(None, "build"), PYTORCH, LEGACY)
    assert (found.priority.value, found.priority_source) == (100, LABEL)
    assert (found.preemptibility, found.preemptibility_source) == (NON, THRESHOLD)
    assert PriorityEntry("just below", 99).by_threshold is PRE


@pytest.mark.parametrize(
    ("defaults", "request_", "code", "field"),
    [
        pytest.param(SPOT, ask(), "priority_required", "priority", id="17"),
        pytest.param(PYTORCH, ask(None, "urgent"), "priority_unknown", "labels.priorityClassName", id="19"),
        pytest.param(PYTORCH, ask("low", "urgent"), "priority_unknown", "labels.priorityClassName", id="19, it loses"),
        pytest.param(PYTORCH, ask("urgent"), "priority_unknown", "priority", id="19, explicit"),
        pytest.param(
            PYTORCH,
            ask(None, None, None, "maybe"),
            "preemptibility_unknown",
            "labels.kai.scheduler/preemptibility",
            id="20",
        ),
        pytest.param(PYTORCH, ask(None, None, "maybe"), "preemptibility_unknown", "preemptibility", id="20, explicit"),
        pytest.param(NVCF, ask("low"), "priority_fixed", "priority", id="21"),
        pytest.param(JOB, pods_name("urgent", "low"), "priority_unknown", POINTER, id="25"),
        pytest.param(NVCF, ask(None, None, PRE), "priority_fixed", "preemptibility", id="21, preemptibility"),
        pytest.param(NVCF, ask("very-high"), "priority_fixed", "priority", id="21, the fixed value itself"),
    ],
)
def test_refused_row_of_the_table(defaults: TypeDefaults, request_: Request, code: str, field: str) -> None:
    found = refusal(request_, defaults)
    assert (found.code, found.field) == (code, field)


def test_an_unknown_name_is_answered_with_the_allowed_ones() -> None:
    assert refusal(ask("urgent"), JOB).allowed == (
        "very-low",
        "low",
        "medium-low",
        "medium",
        "medium-high",
        "high",
        "very-high",
    )
    assert refusal(ask(None, None, "maybe"), JOB).allowed == ("preemptible", "semi-preemptible", "non-preemptible")
    assert "very-low" in refusal(ask(), SPOT).message


def test_what_lost_is_listed_with_the_value_that_won() -> None:
    assert effective(ask("low", "very-high"), PYTORCH).discarded == (
        Discarded("priority", "label", "very-high", "the explicit value low applies"),
    )
    assert effective(ask(None, None, PRE, NON), JOB).discarded == (
        Discarded("preemptibility", "label", "non-preemptible", "the explicit value preemptible applies"),
    )


def test_an_equal_label_is_quiet() -> None:
    assert effective(ask("low", "low", PRE, PRE), JOB).discarded == ()


def test_a_pod_templates_class_that_lost_is_listed() -> None:
    assert effective(pods_name("high", "high"), JOB).discarded == ()
    assert effective(pods_name("high", None, "medium"), PYTORCH).discarded == (
        Discarded("priority", POINTER, "high", "the label value medium applies"),
    )


@pytest.mark.parametrize("name", ["system-node-critical", "unheard-of"])
def test_a_pod_template_may_not_name_an_unknown_or_system_class(name: str) -> None:
    found = refusal(pods_name(name), JOB)
    assert (found.code, found.field, found.allowed) == ("priority_unknown", POINTER, RUNAI.names)


def test_system_names_are_refused_even_if_the_dictionary_has_one() -> None:
    dictionary = Dictionary([PriorityEntry("system-cluster-critical", 2_000_000_000)])
    assert refusal(ask("system-cluster-critical"), JOB, dictionary).code == "priority_unknown"


def test_an_alias_is_accepted_but_not_offered() -> None:
    assert "inference" not in LEGACY.names
    found = effective(ask("inference", "high"), PYTORCH, LEGACY)
    assert (found.priority.name, found.priority.value) == ("inference", 125)
    assert found.discarded == ()


def test_labels_on_a_fixed_type_are_discarded() -> None:
    found = effective(replace(ask(None, "low", None, PRE), pod_priority_class=((POINTER, "low"),)), NVCF)
    assert (found.priority.name, found.priority_source, found.preemptibility) == ("very-high", TYPE, NON)
    assert {lost.because for lost in found.discarded} == {"fixed for NVCF function"}
    assert {lost.field for lost in found.discarded} == {"priority", "preemptibility"}


def test_a_type_without_preemptibility_falls_back_to_the_threshold() -> None:
    half = TypeDefaults("Half", "high", None)
    found = effective(ask(), half)
    assert (found.preemptibility, found.preemptibility_source, found.warnings) == (NON, THRESHOLD, ())


def test_a_types_default_must_be_in_the_dictionary_to_count() -> None:
    assert refusal(ask(), TypeDefaults("Old", "retired", PRE)).code == "priority_required"


def test_semi_preemptible_is_a_value_like_the_others() -> None:
    found = effective(ask(None, None, SEMI), PYTORCH)
    assert (found.preemptibility, found.preemptibility_source) == (SEMI, EXPLICIT)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param(ask("high"), "over-quota", id="non-preemptible now"),
        pytest.param(ask(None, None, NON), "higher priorities of its queue go first", id="low, never evicted"),
        pytest.param(ask("high", None, PRE), "label", id="threshold disagrees"),
    ],
)
def test_warnings_say_what_follows(request_: Request, words: str) -> None:
    (warning,) = effective(request_, PYTORCH).warnings
    assert words in warning.message


def test_a_preemptible_job_may_be_evicted() -> None:
    (warning,) = effective(ask("low"), JOB).warnings
    assert "evicted" in warning.message


HOUSE = PolicyDefaults("medium", "the installation", NON, "department research")


@pytest.mark.parametrize(
    ("request_", "defaults", "policy", "priority", "preemptibility"),
    [
        pytest.param(ask(), PYTORCH, HOUSE, ("medium", Source.POLICY), (NON, Source.POLICY), id="fills both"),
        pytest.param(ask("low"), PYTORCH, HOUSE, ("low", EXPLICIT), (NON, Source.POLICY), id="before the threshold"),
        pytest.param(ask(None, "low", None, PRE), JOB, HOUSE, ("low", LABEL), (PRE, LABEL), id="after labels"),
        pytest.param(pods_name("low"), JOB, HOUSE, ("low", POD_TEMPLATE), (NON, Source.POLICY), id="after templates"),
        pytest.param(
            ask(),
            PYTORCH,
            PolicyDefaults("high", "project a"),
            ("high", Source.POLICY),
            (PRE, TYPE),
            id="a priority alone leaves the type's preemptibility",
        ),
        pytest.param(
            ask(),
            SPOT,
            PolicyDefaults("high", "project a"),
            ("high", Source.POLICY),
            (NON, THRESHOLD),
            id="a type without any follows the threshold",
        ),
        pytest.param(ask(), NVCF, HOUSE, ("very-high", TYPE), (NON, TYPE), id="what is fixed stays"),
    ],
)
def test_a_policys_default_stands_between_label_and_type(
    request_: Request,
    defaults: TypeDefaults,
    policy: PolicyDefaults,
    priority: tuple[str, Source],
    preemptibility: tuple[Preemptibility, Source],
) -> None:
    found = resolve(request_, defaults=defaults, dictionary=RUNAI, policy=policy)
    assert isinstance(found, Effective)
    assert (found.priority.name, found.priority_source) == priority
    assert (found.preemptibility, found.preemptibility_source) == preemptibility


def test_a_policys_default_is_told_with_whose_it_is() -> None:
    found = resolve(ask(), defaults=PYTORCH, dictionary=RUNAI, policy=HOUSE)
    assert isinstance(found, Effective)
    said = [each.message for each in found.warnings if each.code == "set_by_policy"]
    assert said == [
        "Priority medium: set by policy of the installation.",
        "Non-preemptible: set by policy of department research.",
    ]
