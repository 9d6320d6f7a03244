"""Dictionaries that can be loaded, as pure data with what an admin should know before loading one.

Loading is a change plan: an entry whose value is taken becomes an alias, an entry of the same name takes the preset's
value, everything else stays. `types` maps a category or type to the priority the preset gives it; where
`asks_preemptibility` is set the admin must say which of them may be evicted: the values alone would decide wrongly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

NO_TYPES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PresetEntry:
    """One entry of a preset."""

    name: str
    value: int
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named dictionary."""

    name: str
    title: str
    source: str
    entries: tuple[PresetEntry, ...]
    remarks: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=lambda: NO_TYPES)
    asks_preemptibility: bool = False


RUNAI: Final = Preset(
    "runai",
    "Run:ai, seven priorities",
    "Run:ai",
    (
        PresetEntry("very-low", 25, description="Uses leftover GPUs; evicted first."),
        PresetEntry("low", 40, description="Default for training."),
        PresetEntry("medium-low", 65, description="Slightly higher than regular training."),
        PresetEntry("medium", 80, description="Higher than training; preemptible unless set otherwise."),
        PresetEntry("medium-high", 90, description="Highest priority that is preemptible unless set otherwise."),
        PresetEntry(
            "high", 125, description="Default for interactive workloads; non-preemptible unless set otherwise."
        ),
        PresetEntry("very-high", 150, description="Default for inference; non-preemptible unless set otherwise."),
    ),
)

RUNAI_LEGACY: Final = Preset(
    "runai-legacy",
    "Run:ai up to 2.21, four priorities",
    "Run:ai legacy",
    (
        PresetEntry("train", 50, description="Training in older Run:ai versions."),
        PresetEntry("build-preemptible", 75, description="Preemptible interactive workloads."),
        PresetEntry("build", 100, description="Interactive work."),
        PresetEntry("inference", 125, description="Inference."),
    ),
    (
        "KAI still uses these names. Run:ai up to 2.21 called build-preemptible interactive-preemptible.",
        "build has the value 100, which is non-preemptible.",
        "inference has the same value as high and becomes its alias where high exists.",
    ),
)

FOUR_TIERS: Final = Preset(
    "four-tiers",
    "Four GPU tiers",
    "four tiers",
    (
        PresetEntry("gpu-training", 1000, description="Large training."),
        PresetEntry("gpu-serving", 800, description="Serving."),
        PresetEntry("gpu-batch", 400, description="Batch work."),
        PresetEntry("gpu-interactive", 200, "Never", "Notebooks; never evicts others."),
    ),
    (
        "All four values are 100 or more, so even notebooks would be non-preemptible. Set for each category or "
        "type whether it may be evicted.",
        "Training ranks above serving here; Run:ai's order is Deploy, Build, Train.",
        "Never on gpu-interactive stops it from evicting others. It does not protect it.",
        "gpu-training evicts gpu-serving too, and on kube-scheduler it does so in any namespace.",
    ),
    MappingProxyType(
        {
            "Train": "gpu-training",
            "Deploy": "gpu-serving",
            "Job": "gpu-batch",
            "CronJob": "gpu-batch",
            "Build": "gpu-interactive",
        }
    ),
    asks_preemptibility=True,
)

THREE_TIERS: Final = Preset(
    "three-tiers",
    "Three tiers",
    "three tiers",
    (
        PresetEntry("critical", 125, description="Must run."),
        PresetEntry("normal", 80, description="Regular workloads."),
        PresetEntry("scavenger", 25, description="Leftover capacity."),
    ),
    (
        "The source gives no values; 125, 80 and 25 are Rung's proposal.",
        "With the seven Run:ai priorities these values are taken, and the three become aliases of high, medium and "
        "very-low.",
        "Priority and preemptibility are separate: scavenger orders the queue, preemptible allows eviction.",
    ),
)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {preset.name: preset for preset in (RUNAI, RUNAI_LEGACY, FOUR_TIERS, THREE_TIERS)}
)
