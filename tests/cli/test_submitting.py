"""Submitting and asking first: manifests, several of them, refusals with the field, and one submission per key."""

from pathlib import Path

from tests.cli.conftest import Rung, job
from workloads.models import Workload


def names() -> set[str]:
    return set(Workload.objects.values_list("name", flat=True))


def test_a_manifest_is_submitted_from_a_file_and_from_stdin(signed_in: Rung, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job("from-file"))
    ended = signed_in("submit", "-f", str(file), "--priority", "high")
    assert ended.code == 0, ended.err
    assert "Submitted llm-team/from-file" in ended.out
    assert "Priority        high" in ended.out
    assert "(chosen)" in ended.out
    assert signed_in("submit", "-f", "-", "-o", "name", stdin=job("piped")).out == "llm-team/piped\n"
    assert names() == {"from-file", "piped"}


def test_several_manifests_are_all_good_or_none_is_submitted(signed_in: Rung) -> None:
    bad = job("two").replace("restartPolicy", "hostNetwork")
    ended = signed_in("submit", "-f", "-", stdin=f"# first\n---\n{job('one')}---\n{bad}")
    assert ended.code == 1
    assert "stdin, document 2" in ended.err
    assert "line 23, /spec/template/spec/hostNetwork" in ended.err
    assert names() == set()
    assert signed_in("submit", "-f", "-", stdin=f"{job('one')}---\n{job('two')}").code == 0
    assert names() == {"one", "two"}
