"""The allowlist of every kind: for each manifest type the fields of its spec that a tenant may write."""

from collections.abc import Mapping
from typing import Final

from workloads.intake.rules import Rule
from workloads.intake.specs import build, native, serving, training

SPECS: Final[Mapping[str, Rule]] = {**native.SPECS, **training.SPECS, **build.SPECS, **serving.SPECS}
