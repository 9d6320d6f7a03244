"""NIM and Hugging Face inference: model, token by its Secret's name, probes, port and storage in the rendered pod."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workloads.intake.manifests import SCOPE
from workloads.intake import FormFields, IntakeRefused, read_form

GRANTED = replace(SCOPE, secrets=("hf-token", "ngc-api-key", "ngc-registry"))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def pod(kind: str, **fields: Any) -> dict[str, Any]:
    needed = {"model": MODEL} if kind == "HuggingFaceInference" else {}
    given = {"type": kind, "name": "theirs", "image": "nvcr.io/a/b:1", "gpus": "1", **needed, **fields}
    spec: dict[str, Any] = read_form(FormFields(**given), scope=GRANTED).manifest["spec"]["template"]["spec"]
    return spec


def environment(kind: str, **fields: Any) -> dict[str, Any]:
    [container] = pod(kind, **fields)["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_a_nim_is_told_its_cache_its_port_and_where_its_key_stands() -> None:
    assert environment("NIMInference", secret="ngc-api-key", port=9000) == {  # a Secret's name
        "NIM_CACHE_PATH": "/opt/nim/.cache",
        "NIM_HTTP_API_PORT": "9000",
        "NGC_API_KEY": {"secretKeyRef": {"name": "ngc-api-key", "key": "NGC_API_KEY"}},
    }
    assert environment("NIMInference", model="acme/tiny")["NIM_MODEL_NAME"] == "acme/tiny"


def test_vllm_is_given_the_model_before_the_arguments_of_the_form() -> None:
    [container] = pod("HuggingFaceInference", arguments="--max-model-len 4096", secret="hf-token")[
        "containers"
    ]  # a Secret's name
    assert container["args"] == ["--model", MODEL, "--port", "8000", "--max-model-len", "4096"]
    assert container["env"][-1]["valueFrom"]["secretKeyRef"] == {"name": "hf-token", "key": "HF_TOKEN"}


def test_text_generation_inference_is_given_it_by_its_environment() -> None:
    told = environment("HuggingFaceInference", engine="TGI", port=8080)
    assert told == {"HF_HOME": "/models", "MODEL_ID": MODEL, "PORT": "8080"}
    assert "args" not in pod("HuggingFaceInference", engine="TGI")["containers"][0]


def test_what_was_filled_in_by_hand_stands() -> None:
    assert environment("HuggingFaceInference", environment=(("HF_HOME", "/elsewhere"),))["HF_HOME"] == "/elsewhere"


@pytest.mark.parametrize(
    ("kind", "live", "ready"),
    [("NIMInference", "/v1/health/live", "/v1/health/ready"), ("HuggingFaceInference", "/health", "/health")],
)
def test_it_is_probed_where_it_listens_and_may_load_for_half_an_hour(kind: str, live: str, ready: str) -> None:
    [container] = pod(kind)["containers"]
    requested = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    assert requested == {
        "livenessProbe": {"path": live, "port": 8000},
        "readinessProbe": {"path": ready, "port": 8000},
        "startupProbe": {"path": ready, "port": 8000},
    }
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] == 1800
    assert container["ports"] == [{"containerPort": 8000, "name": "http"}]


def test_the_model_is_kept_on_a_claim_or_with_the_pod() -> None:
    kept = pod("NIMInference", storage="models", pull_secret="ngc-registry")  # a Secret's name
    assert kept["volumes"][0] == {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    assert kept["imagePullSecrets"] == [{"name": "ngc-registry"}]
    assert pod("NIMInference")["volumes"][0] == {"name": "models", "emptyDir": {}}
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod("NIMInference")["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        pytest.param({"model": ""}, "/model", "required", id="no model"),
        pytest.param({"model": "../../etc"}, "/model", "bad_model", id="a path"),
        pytest.param({"model": "a/b --trust-remote-code"}, "/model", "bad_model", id="an option behind the model"),
        pytest.param({"engine": "Ollama"}, "/engine", "engine_unknown", id="another server"),
        pytest.param({"secret": "somebody-elses"}, "/secret", "not_granted", id="T14 the Secret of another owner"),
        pytest.param({"pull_secret": "no"}, "/pull_secret", "not_granted", id="T14 another one to pull with"),
        pytest.param({"storage": "../claim"}, "/storage", "bad_name", id="a claim that is no name"),
    ],
)
def test_bad_settings_are_refused_at_their_fields(fields: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(IntakeRefused) as refusal:
        pod("HuggingFaceInference", **fields)
    assert (pointer, code) in {(problem.pointer, problem.code) for problem in refusal.value.problems}
