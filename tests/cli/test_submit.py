"""Submitting and asking first: manifests, several of them, refusals with the field, and one submission per key."""

from pathlib import Path

import pytest

from rung_cli.output.submission import SOURCES
from tests.cli.conftest import Rung, job
from workloads.dictionary.rules.resolution import Source
from workloads.forecast.services import storage
from workloads.state.models import Workload


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


def test_every_source_of_a_value_has_its_words() -> None:
    assert set(SOURCES) == set(Source)


def test_several_manifests_are_all_good_or_none_is_submitted(signed_in: Rung) -> None:
    bad = job("two").replace("restartPolicy", "hostNetwork")
    ended = signed_in("submit", "-f", "-", stdin=f"# first\n---\n{job('one')}---\n{bad}")
    assert ended.code == 1
    assert "stdin, document 2" in ended.err
    assert "line 23, /spec/template/spec/hostNetwork" in ended.err
    assert names() == set()
    assert signed_in("submit", "-f", "-", stdin=f"{job('one')}---\n{job('two')}").code == 0
    assert names() == {"one", "two"}


def test_flags_make_a_native_workload_after_its_dry_run(signed_in: Rung) -> None:
    requested = ("submit", "train", "-i", "docker.io/a/b:1", "-g", "2", "--priority", "high")
    tried = signed_in(*requested, "--dry-run", "--", "python", "train.py")
    assert tried.code == 0, tried.err
    assert tried.out.startswith("Would submit llm-team/train\n  Priority        high             (chosen)\n")
    assert "If submitted now: Starts now in h100" in tried.out
    assert names() == set()
    assert "Requests: 1 pod, 2 GPUs" in tried.out
    assert signed_in(*requested, "--", "python", "train.py").code == 0
    made = Workload.objects.get()
    assert (made.name, made.type.name, made.gpu_milli, made.priority.name) == ("train", "Training", 2000, "high")
    refused = signed_in("submit", "train", "-i", "docker.io/a/b:1", "--priority", "urgent")
    assert (refused.code, "--priority: " in refused.err) == (1, True)


def test_what_a_forecast_does_not_know_is_shown_with_its_code_and_what_to_check(signed_in: Rung) -> None:
    claims = "persistentVolumeClaim: {claimName: corpus}"
    mounting = job("mounts").replace("containers:", f"volumes: [{{name: data, {claims}}}]\n      containers:", 1)
    for command in (("explain", "-"), ("submit", "-f", "-", "--dry-run")):
        ended = signed_in(*command, stdin=mounting)
        assert ended.code == 0, ended.err
        assert ended.out.count("mounts the volume claim corpus") == 1, "once, not as a warning beside"
        assert "Uncertain: It mounts" in ended.out
        assert "get pvc corpus (volume_claim)" in ended.out


def test_a_run_of_a_pipeline_that_is_repeated_submits_once(signed_in: Rung) -> None:
    first, again = (
        signed_in("submit", "-f", "-", "--idempotency-key", "build-17", "-o", "json", stdin=job("once")).data
        for _ in range(2)
    )
    assert first["metadata"]["id"] == again["metadata"]["id"]
    assert names() == {"once"}


def test_an_explanation_names_sources_and_what_is_not_used_and_submits_nothing(signed_in: Rung) -> None:
    labelled = job("asked").replace("name: asked", "name: asked\n  labels: {priorityClassName: low}")
    ended = signed_in("explain", "-", "--priority", "high", stdin=labelled)
    assert ended.code == 0, ended.err
    assert "Priority        high 125         (chosen)" in ended.out
    assert "Preemptibility  non-preemptible  (by priority: 100 and above is non-preemptible)" in ended.out
    assert "Ignored: priority low of label: the explicit value high applies." in ended.out
    assert "If submitted now: Starts now in h100" in ended.out
    assert "Estimated with the" in ended.out
    both = signed_in("explain", "-", "-o", "json", stdin=f"{job('one')}---\n{job('two')}").data
    assert [each["name"] for each in both] == ["one", "two"]
    assert signed_in("explain", "-", stdin=job("bad").replace("restartPolicy", "hostNetwork")).code == 1
    assert names() == set()


def test_a_submission_shows_what_the_model_expected_before_it(signed_in: Rung) -> None:
    """From flags and from manifests; JSON is the server's answer alone."""
    flags = ("submit", "from-flags", "-i", "docker.io/a/b:1", "-g", "2")
    for requested, stdin in ((flags, ""), (("submit", "-f", "-"), job("from-file", gpus=2))):
        ended = signed_in(*requested, stdin=stdin)
        assert ended.code == 0, ended.err
        assert "  Requests: 1 pod, 2 GPUs\n  Preview before the submission: Starts now in h100" in ended.out
        assert "Estimated with the" in ended.out
    assert names() == {"from-flags", "from-file"}
    plain = signed_in("submit", "as-data", "-i", "docker.io/a/b:1", "-o", "json").data
    assert not {"forecast", "preview"} & plain.keys()


def test_several_forecasts_are_said_once_to_be_made_alone(signed_in: Rung) -> None:
    alone = "Each document is previewed alone, as if the others were not submitted. Together they may not all start."
    two = f"{job('one')}---\n{job('two')}"
    for command in (("explain", "-"), ("submit", "-f", "-", "--dry-run"), ("submit", "-f", "-")):
        ended = signed_in(*command, stdin=two)
        assert " ".join(ended.out.split()).count(alone) == 1, command
        assert alone not in signed_in("explain", "-", stdin=job("three")).out
    data = signed_in("explain", "-", "-o", "json", stdin=two)
    assert (len(data.data), data.err) == (2, f"{alone}\n")


def test_a_repeated_submission_shows_no_preview_of_another_one(signed_in: Rung) -> None:
    requested = ("submit", "once", "-i", "docker.io/a/b:1", "--idempotency-key", "build-18")
    assert "Preview before" in signed_in(*requested).out
    again = signed_in(*requested)
    assert (again.code, "Preview before" in again.out) == (0, False)


def test_pods_and_gpus_of_a_distributed_training_include_its_master(signed_in: Rung) -> None:
    requested = ("submit", "gang", "--type", "distributed", "-i", "docker.io/a/b:1", "-g", "1", "--workers", "3")
    assert "Requests: 4 pods, 4 GPUs" in signed_in(*requested, "--dry-run").out
    launched = signed_in(*requested, "--framework", "MPI", "--dry-run")
    assert "Requests: 4 pods, 3 GPUs" in launched.out


def test_a_refusal_says_each_thing_once_with_its_place(signed_in: Rung) -> None:
    flags = ("submit", "train", "-i", "docker.io/a/b:1")
    memory = signed_in(*flags, "--gpu-memory", "20G").err
    assert memory.count("GPU memory requests are not supported.") == 1
    assert "  --gpu-memory; /spec/compute/gpuRequestType: GPU memory" in memory
    unreadable = signed_in("explain", "-", stdin="kind: Job\n  bad: [\n").err
    assert unreadable.count("Not YAML") == 1
    assert "  line 2: Not YAML" in unreadable
    named = signed_in("submit", "X_Y", "-i", "docker.io/a/b:1").err
    assert named == "rung: refused.\n  --name: Use lower-case letters, digits and inner dashes.\n"


def test_a_refusal_of_a_large_workload_is_a_sentence_and_its_size(signed_in: Rung) -> None:
    requested = ("submit", "gang", "--type", "distributed", "-i", "docker.io/a/b:1", "-g", "8", "--workers", "5")
    lines = signed_in(*requested).err.splitlines()
    assert lines[0] == "rung: refused."
    assert "It needs 48 GPUs in h100" in lines[1]
    assert "  Requests: 6 pods, 48 GPUs" in lines
    assert not [line for line in lines if "needed 48 GPU," in line]


@pytest.mark.parametrize("by", ["flags", "manifest"])
def test_a_submission_does_not_depend_on_its_preview(signed_in: Rung, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(storage, "FORECASTS_A_MINUTE", 0)
    requested = ("submit", "busy", "-i", "docker.io/a/b:1") if by == "flags" else ("submit", "-f", "-")
    ended = signed_in("--retries", "0", *requested, stdin="" if by == "flags" else job("busy"))
    assert (ended.code, names()) == (0, {"busy"})
    assert "No preview: You can ask for" in ended.err
    assert "Submitted llm-team/busy" in ended.out
