"""The run fails when tests leave a line or a branch of the model out, or too much of everything."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import coverage_gates


def verdict(folder: Path, monkeypatch: pytest.MonkeyPatch, *, percent: float = 95.0, **of_a_rule: Any) -> int:
    """The exit code for a report with one file of the model and one of something else."""
    complete = {"missing_lines": [], "missing_branches": []}
    files = {"scheduling/rules/one.py": complete | of_a_rule, "portal/two.py": complete | {"missing_lines": [3]}}
    report = folder / "report.json"
    report.write_text(json.dumps({"files": files, "summary": {"percent_covered": percent}}))
    monkeypatch.setattr(sys, "argv", ["coverage_gates", str(report)])
    return coverage_gates.main()


def test_a_line_outside_the_model_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(tmp_path, monkeypatch) == 0


@pytest.mark.parametrize("missing", [{"missing_lines": [7]}, {"missing_branches": [[7, 0]]}])
def test_a_line_or_branch_of_the_model_that_was_left_out_fails_the_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: dict[str, Any]
) -> None:
    assert verdict(tmp_path, monkeypatch, **missing) == 1
    assert "scheduling/rules/one.py: lines" in capsys.readouterr().out


def test_less_than_ninety_percent_of_everything_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(tmp_path, monkeypatch, percent=89.9) == 1
