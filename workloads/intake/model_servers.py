"""Inference of a named model: what NVIDIA NIM and the servers of Hugging Face models are told, written into their pod.

Sources: NVIDIA NIM for LLMs (environment variables, `/v1/health/*`, cache below `/opt/nim/.cache`), vLLM's
OpenAI-compatible server and Hugging Face Text Generation Inference (`/health`, `HF_TOKEN`, `HF_HOME`). Tokens are named
by their Secret, never written out; without a claim what is downloaded stays in the pod and goes with it.
"""

import re
from typing import Any, Final

from workloads.intake.form_fields import ENGINES, FormFields
from workloads.intake.problems import IntakeRefused, Problem, visible

Manifest = dict[str, Any]
PORT: Final = 8000
NIM_CACHE: Final = "/opt/nim/.cache"
HF_CACHE: Final = "/models"
MODEL: Final = re.compile(r"[A-Za-z0-9][-.\w]*(/[A-Za-z0-9][-.\w]*)?", re.ASCII)
LONGEST: Final = 200
LOADS_FOR: Final = {"periodSeconds": 10, "failureThreshold": 180}
"""A model may take half an hour to be downloaded and loaded before its server is taken for dead."""


def nim(served: Manifest, fields: FormFields) -> Manifest:
    """A Deployment as a NIM wants it. `model` is for images that serve any model; others bring theirs."""
    _check(fields, required=False)
    container = _container(served)
    settings = {"NIM_CACHE_PATH": NIM_CACHE, "NIM_HTTP_API_PORT": str(_port(fields))}
    if fields.model.strip():
        settings["NIM_MODEL_NAME"] = fields.model.strip()
    _tell(container, settings, fields, token="NGC_API_KEY")  # noqa: S106  # the name of a variable
    _probe(container, fields, live="/v1/health/live", ready="/v1/health/ready")
    return _store(served, fields, at=NIM_CACHE)


def hugging_face(served: Manifest, fields: FormFields) -> Manifest:
    """A Deployment as vLLM or Text Generation Inference want it."""
    _check(fields, required=True)
    container, model, port = _container(served), fields.model.strip(), str(_port(fields))
    settings = {"HF_HOME": HF_CACHE}
    if fields.engine == "vLLM":
        container["args"] = ["--model", model, "--port", port, *container.get("args", [])]
    else:
        settings |= {"MODEL_ID": model, "PORT": port}
    _tell(container, settings, fields, token="HF_TOKEN")  # noqa: S106  # the name of a variable
    _probe(container, fields, live="/health", ready="/health")
    return _store(served, fields, at=HF_CACHE)


def _check(fields: FormFields, *, required: bool) -> None:
    model, problems = fields.model.strip(), []
    if required and not model:
        problems.append(Problem("/model", "required", "Which model? Such as meta-llama/Llama-3.1-8B-Instruct."))
    elif model and (len(model) > LONGEST or not MODEL.fullmatch(model)):
        problems.append(Problem("/model", "bad_model", f"{visible(model)!r} is not the name of a model."))
    if fields.engine not in ENGINES:
        problems.append(Problem("/engine", "engine_unknown", "There is no such server.", allowed=ENGINES))
    if problems:
        raise IntakeRefused(422, problems)


def _container(served: Manifest) -> Manifest:
    container: Manifest = served["spec"]["template"]["spec"]["containers"][0]
    return container


def _port(fields: FormFields) -> int:
    return fields.port or PORT


def _tell(container: Manifest, settings: dict[str, str], fields: FormFields, *, token: str) -> None:
    """Settings first, then what was filled in: the later of two variables of one name counts."""
    own = {name for name, _value in fields.environment}
    told: list[Manifest] = [{"name": name, "value": text} for name, text in settings.items() if name not in own]
    if fields.secret.strip():
        source = {"secretKeyRef": {"name": fields.secret.strip(), "key": token}}
        told.append({"name": token, "valueFrom": source})
    container["env"] = [*told, *container.get("env", [])]
    container["ports"] = [{"containerPort": _port(fields), "name": "http"}]


def _probe(container: Manifest, fields: FormFields, *, live: str, ready: str) -> None:
    def asked(path: str, **times: int) -> Manifest:
        return {"httpGet": {"path": path, "port": _port(fields)}, **times}

    container["startupProbe"] = asked(ready, **LOADS_FOR)
    container["readinessProbe"] = asked(ready, periodSeconds=10)
    container["livenessProbe"] = asked(live, periodSeconds=10, failureThreshold=6)


def _store(served: Manifest, fields: FormFields, *, at: str) -> Manifest:
    """Where the model is kept, and shared memory for its processes."""
    claim = fields.storage.strip()
    kept = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    spec = served["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "models", **kept}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "models", "mountPath": at}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  # the pod's own
    _container(served)["volumeMounts"] = mounts
    if fields.pull_secret.strip():
        spec["imagePullSecrets"] = [{"name": fields.pull_secret.strip()}]
    return served
