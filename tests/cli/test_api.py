"""`rung api`: any route, with a body from a file, and nothing that could not be sent."""

from pathlib import Path

import pytest

from tenants.organisation.models import Project
from tests.cli.conftest import Rung


def test_what_has_no_command_of_its_own_is_asked_by_its_address(signed_in: Rung) -> None:
    found = signed_in("api", "get", "v1/clusters?verbosity=metadata")
    assert (found.code, [each["name"] for each in found.data]) == (0, ["lab"])
    assert "name: lab" in signed_in("api", "GET", "/api/v1/clusters", "-o", "yaml").out


def test_a_write_takes_its_body_from_yaml_or_json_and_prints_the_answer(
    signed_in: Rung, llm_team: Project, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"name": "weekly", "start": "2026-01-05T00:00:00Z", "end": "2026-01-12T00:00:00Z"}')
    made = signed_in("api", "POST", "v1/org-unit/reports", "-f", str(file))
    assert (made.code, made.data["name"]) == (0, "weekly")
    dated = "name: later\nstart: 2026-01-05T00:00:00Z\nend: 2026-01-12T00:00:00Z\n"
    assert signed_in("api", "POST", "v1/org-unit/reports", "-f", "-", stdin=dated).code == 0
    gone = signed_in("api", "DELETE", f"v1/org-unit/reports/{made.data['id']}")
    assert (gone.code, gone.out) == (0, "")


@pytest.mark.parametrize(
    ("requested", "text", "said"),
    [
        (("GET", "v1/clusters", "-f", "-"), "a: 1", "GET takes no body"),
        (("POST", "v1/org-unit/reports", "-f", "-"), "a: [", "not valid YAML"),
        (("POST", "v1/org-unit/reports", "-f", "-"), "a: .nan", "cannot be converted to JSON"),
        (("POST", "v1/org-unit/reports", "-f", "-"), "a: 1\n---\nb: 2", "The body must be one document"),
        (("FETCH", "v1/clusters"), "", "FETCH"),
        (("GET", "v1/clusters", "-o", "name"), "", "-o name is not supported"),
    ],
)
def test_t70_what_cannot_be_asked_is_said_before_anything_is_sent(
    signed_in: Rung, requested: tuple[str, ...], text: str, said: str
) -> None:
    ended = signed_in("api", *requested, stdin=text)
    assert (ended.code, said in ended.err) == (64, True), ended.err


def test_a_refusal_is_the_portals_own(signed_in: Rung) -> None:
    ended = signed_in("api", "DELETE", "v1/org-unit/reports/00000000-0000-4000-8000-000000000001")
    assert ended.code == 1


def test_what_belongs_into_no_file_comes_from_the_environment(
    signed_in: Rung, llm_team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPORT_NAME", "weekly")
    dated = "start: 2026-01-05T00:00:00Z\nend: 2026-01-12T00:00:00Z\n"
    requested = ("api", "POST", "v1/org-unit/reports", "-f", "-", "--from-env", "/name=REPORT_NAME")
    assert signed_in(*requested, stdin=dated).data["name"] == "weekly"


@pytest.mark.parametrize("given", ["name=PATH", "/name", "/=PATH", "/a/b=PATH", "/start/day=PATH", "/name=RUNG_NONE"])
def test_a_member_that_has_no_place_or_no_variable_is_said_before_anything_is_sent(signed_in: Rung, given: str) -> None:
    requested = ("api", "POST", "v1/org-unit/reports", "-f", "-", "--from-env", given)
    ended = signed_in(*requested, stdin="start: monday")
    assert (ended.code, "--from-env" in ended.err) == (64, True), ended.err
