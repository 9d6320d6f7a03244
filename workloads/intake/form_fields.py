"""What a person filled in."""

from dataclasses import dataclass
from typing import Final

ENGINES: Final = ("vLLM", "TGI")
"""Servers of Hugging Face models whose settings are written: vLLM and Text Generation Inference."""


@dataclass(frozen=True, slots=True)
class FormFields:
    """As text where they typed text. `workers`: pods of a distributed job or of one replica.

    `gpus` counts per pod: `8`, or a share of one such as `0.5`. Empty texts are left to the cluster's defaults.
    `min_member`: how many pods start together, None for all. `secret` and `pull_secret` are names, never contents.
    """

    type: str
    name: str
    image: str
    command: str = ""
    arguments: str = ""
    gpus: str = "0"
    cpu: str = ""
    memory: str = ""
    workers: int = 1
    replicas: int = 1
    port: int | None = None
    framework: str = "PyTorch"
    environment: tuple[tuple[str, str], ...] = ()
    node_pools: tuple[str, ...] = ()
    min_member: int | None = None
    placement: str = ""
    topology_key: str = ""
    model: str = ""
    engine: str = "vLLM"
    secret: str = ""
    pull_secret: str = ""
    storage: str = ""
    grace_seconds: int | None = None
    run_seconds: int | None = None
    checkpoint_interval: str = ""
    priority: str | None = None
    preemptibility: str | None = None
