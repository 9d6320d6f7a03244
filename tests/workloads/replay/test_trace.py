"""Traces as files: what is read of them, and how what is wrong is named."""

import pytest

from portal.kit.errors import ValidationFailed
from workloads.replay import rules
from workloads.replay.rules import TraceMapping, TraceRow, parse_trace

COLUMNS = {"submitted": "t", "duration": "dur", "gpus": "gpu"}
ALL = {**COLUMNS, "workers": "n", "owner": "user", "priority": "prio", "preemptible": "spot"}


def mapping(columns: dict[str, str] = ALL, **more: str) -> TraceMapping:
    given = {"project": "", "priority": "low", **more}
    return TraceMapping(columns, {"HP": "high"}, given["project"], given["priority"], {"llm"}, {"low", "high"})


def message_of(text: str, known: TraceMapping) -> tuple[str, str]:
    with pytest.raises(ValidationFailed) as caught:
        parse_trace(text, known)
    return caught.value.problems[0].pointer, caught.value.problems[0].message


def test_every_column_is_read_and_times_begin_with_the_first() -> None:
    text = "\ufefft,dur,gpu,n,user,prio,spot\n100,60,8,2,llm,HP,false\n\n40,PT1H30M,0.5,,llm,,spot\n"
    assert parse_trace(text, mapping()) == [
        TraceRow("line-4", 0, 5400, 500, 1, "llm", "low", preemptible=True),
        TraceRow("line-2", 60, 60, 8000, 2, "llm", "high", preemptible=False),
    ]


def test_times_may_be_iso_8601() -> None:
    text = "t,dur,gpu\n2026-11-24T18:00:00Z,60,1\n2026-11-24T19:00:30+01:00,P1DT2M,1\n2026-11-24 18:01:00,1.5,1\n"
    rows = parse_trace(text, mapping(COLUMNS, project="llm"))
    assert [(row.submitted, row.duration) for row in rows] == [(0, 60), (30, 86520), (60, 1)]


@pytest.mark.parametrize(
    ("first", "other", "kind"),
    [("1764000000", "2025-11-24T18:00:00Z", "seconds"), ("2025-11-24T18:00:00Z", "1764000000", "ISO 8601")],
)
def test_times_of_another_kind_than_the_first_are_refused_by_line_and_column(first: str, other: str, kind: str) -> None:
    text = f"t,dur,gpu\n{first},60,1\n{first},60,1\n{other},60,1\n{first},60,1\n"
    with pytest.raises(ValidationFailed) as caught:
        parse_trace(text, mapping(COLUMNS, project="llm"))
    (problem,) = caught.value.problems
    assert problem.message == f"Line 4, column \"t\": '{other}' is not a time in {kind}, as in the first row."


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        pytest.param(
            "soon,60,1,1,llm,low,", "Line 2, column \"t\": 'soon' is not a time: seconds, or ISO 8601", id="time"
        ),
        pytest.param("-1,60,1,1,llm,low,", 'Line 2, column "t"', id="a time before all times"),
        pytest.param("0,-5,1,1,llm,low,", "Line 2, column \"dur\": '-5' is not a duration of 0 s", id="negative"),
        pytest.param("0,P,1,1,llm,low,", 'Line 2, column "dur"', id="an empty ISO duration"),
        pytest.param("0,NaN,1,1,llm,low,", 'Line 2, column "dur"', id="NaN"),
        pytest.param("0,60,many,1,llm,low,", 'Line 2, column "gpu"', id="GPUs"),
        pytest.param("0,60,1,0,llm,low,", 'Line 2, column "n"', id="workers"),
        pytest.param("0,60,1,1,eve,low,", "Line 2, column \"user\": 'eve' is not a project", id="owner"),
        pytest.param("0,60,1,1,llm,BE,", "Line 2, column \"prio\": 'BE' is not a priority; map it to", id="priority"),
        pytest.param("0,60,1,1,llm,low,perhaps", "Line 2, column \"spot\": 'perhaps' is not true or false", id="flag"),
        pytest.param("0,60,1", "Line 2: 3 cells, the header has 7.", id="cells"),
        pytest.param('0,"60', "Line 2: 2 cells", id="an open quote"),
    ],
)
def test_a_bad_cell_is_named_by_line_and_column(cells: str, said: str) -> None:
    pointer, message = message_of(f"t,dur,gpu,n,user,prio,spot\n{cells}\n", mapping())
    assert pointer == "/trace/csv"
    assert message.startswith(said)


def test_a_column_that_is_missing_is_named_with_those_there_are() -> None:
    pointer, message = message_of("time,dur,gpu\n0,1,1\n", mapping(COLUMNS, project="llm"))
    assert (pointer, message) == (
        "/trace/columns/submitted",
        'Line 1: no column "t". The header has: time, dur, gpu.',
    )


@pytest.mark.parametrize(
    ("head", "name"),
    [
        pytest.param("t,dur,gpu,t", "t", id="a column that is named"),
        pytest.param("t,dur,gpu,node,node", "node", id="a column that is not read"),
        pytest.param("t,dur,gpu,Priority,priority", "priority", id="our own name in two cases"),
    ],
)
def test_a_column_that_is_there_twice_is_named_with_its_line(head: str, name: str) -> None:
    pointer, message = message_of(f"{head}\n0,1,1,low,low\n", mapping(COLUMNS, project="llm"))
    assert (pointer, message) == ("/trace/csv", f'Line 1: the column "{name}" is there more than once.')


def test_columns_without_a_name_and_those_that_a_mapping_tells_apart_are_no_repetition() -> None:
    text = "t,dur,gpu,priority,Priority,,\n0,60,1,urgent,HP,,\n"
    (row,) = parse_trace(text, mapping({**COLUMNS, "priority": "Priority"}, project="llm"))
    assert row.priority == "high"


def test_columns_with_our_names_are_found_in_any_case() -> None:
    text = " GPUs ,Submitted,DURATION,workers,Owner,priority,preemptible\n8,0,60,2,llm,HP,no\n"
    (row,) = parse_trace(text, mapping({}, priority=""))
    assert row == TraceRow("line-2", 0, 60, 8000, 2, "llm", "high", preemptible=False)


def test_a_named_column_wins_over_one_with_our_name() -> None:
    text = "submitted,duration,gpus,priority,class\n0,60,1,urgent,HP\n"
    (row,) = parse_trace(text, mapping({"priority": "class"}, project="llm"))
    assert row.priority == "high"


def test_a_column_that_is_named_for_another_field_is_not_read_twice() -> None:
    (row,) = parse_trace(
        "submitted,duration,gpus,priority\n0,60,1,spot\n", mapping({"preemptible": "priority"}, project="llm")
    )
    assert (row.priority, row.preemptible) == ("low", True)


def test_each_missing_column_is_one_problem_whatever_the_number_of_rows() -> None:
    with pytest.raises(ValidationFailed) as caught:
        parse_trace("submitted,gpus\n" + "0,1\n" * 5, mapping({}, priority=""))
    assert [(problem.pointer, problem.message) for problem in caught.value.problems] == [
        ("/trace/columns/duration", 'Line 1: no column "duration". The header has: submitted, gpus.'),
        ("/trace/columns/owner", 'Line 1: no column "owner", and no default. The header has: submitted, gpus.'),
        ("/trace/columns/priority", 'Line 1: no column "priority", and no default. The header has: submitted, gpus.'),
    ]


def test_no_more_than_twenty_problems_are_told() -> None:
    text = "t,dur,gpu\n" + "x,1,1\n" * 50
    with pytest.raises(ValidationFailed) as caught:
        parse_trace(text, mapping(COLUMNS, project="llm"))
    assert len(caught.value.problems) == 20


def test_an_empty_trace_has_no_rows() -> None:
    known = mapping(COLUMNS, project="llm")
    assert message_of("t,dur,gpu\n", known)[1] == "The trace has no rows below its header line."
    assert message_of("", known)[1].endswith("The header has: nothing.")


def test_a_trace_is_refused_by_its_size_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_ROWS", 2)
    assert message_of("t,dur,gpu\n" + "0,1,1\n" * 3, mapping(COLUMNS))[1].startswith(
        "The trace must have at most 2 rows"
    )
    monkeypatch.setattr(rules, "MOST_BYTES", 10)
    assert message_of("t,dur,gpu\n0", mapping(COLUMNS))[1].startswith("The trace must be at most 10 bytes")


def test_a_cell_longer_than_csv_allows_is_named_by_its_line() -> None:
    text = "t,dur,gpu\n" + "9" * 131_073 + ",1,1\n"
    assert message_of(text, mapping(COLUMNS, project="llm"))[1].startswith("Line 2: not CSV")
