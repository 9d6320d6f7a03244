"""The rules of the dictionary as values: what a change makes of it, or the problems at their fields."""

import pytest

from workloads.dictionary.rules.drafts import Answer, Draft, DraftEntry, DraftType, add, change, rename, retire

DRAFT = Draft(
    entries={
        "low": DraftEntry("low", 40),
        "high": DraftEntry("high", 125),
        "inference": DraftEntry("inference", 125, alias_of="high"),
        "old": DraftEntry("old", 60, retired=True),
    },
    types={"Job": DraftType("Job", "Build", "high", "non-preemptible")},
    categories={"Build": "high"},
)


def codes(answer: Answer) -> list[tuple[str, str]]:
    """Pointer and code of every problem."""
    assert isinstance(answer, list)
    return [(problem.pointer, problem.code) for problem in answer]


def changed(answer: Answer) -> Draft:
    """The draft of an answer that is one."""
    assert isinstance(answer, Draft)
    return answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(change(DRAFT, "urgent", value=1), ("/name", "priority_unknown"), id="change what is not there"),
        pytest.param(change(DRAFT, "inference", value=130), ("/name", "alias"), id="give an alias another value"),
        pytest.param(change(DRAFT, "low", value=125), ("/value", "value_taken"), id="take another's value"),
        pytest.param(rename(DRAFT, "old", "new"), ("/name", "priority_unknown"), id="rename what is retired"),
        pytest.param(rename(DRAFT, "low", "high"), ("/name", "name_taken"), id="rename to a taken name"),
        pytest.param(retire(DRAFT, "old"), ("/name", "priority_unknown"), id="retire twice"),
        pytest.param(
            add(DRAFT, DraftEntry("x", 1, alias_of="old")),
            ("/aliasOf", "priority_unknown"),
            id="alias of a retired one",
        ),
        pytest.param(
            add(DRAFT, DraftEntry("x", 1, alias_of="low")), ("/value", "alias_value"), id="alias with its own value"
        ),
    ],
)
def test_what_cannot_be_is_a_problem_at_its_field(answer: Answer, problem: tuple[str, str]) -> None:
    assert codes(answer) == [problem]


def test_a_rename_moves_defaults_and_aliases() -> None:
    after = changed(rename(DRAFT, "high", "urgent"))
    assert (after.types["Job"].priority, after.categories["Build"]) == ("urgent", "urgent")
    assert {name: entry.alias_of for name, entry in after.entries.items() if entry.alias_of} == {
        "high": "urgent",
        "inference": "urgent",
    }
    assert [entry.name for entry in after.offered] == ["low", "urgent"]


def test_a_retired_entry_comes_back_with_new_values() -> None:
    assert changed(add(DRAFT, DraftEntry("old", 61))).entries["old"] == DraftEntry("old", 61)


def test_an_aliass_description_is_its_own() -> None:
    after = changed(change(DRAFT, "inference", description="served"))
    assert after.entries["inference"].description == "served"
    assert after.entries["inference"].value == 125


def test_a_draft_is_never_changed_in_place() -> None:
    before = dict(DRAFT.entries)
    changed(change(DRAFT, "high", value=126))
    assert dict(DRAFT.entries) == before
