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
    "Run:ai, seven levels",
    "Run:ai",
    (
        PresetEntry("very-low", 25, description="Scavenges what nobody else wants; first to give way."),
        PresetEntry("low", 40, description="Training by default."),
        PresetEntry("medium-low", 65, description="A little before ordinary training."),
        PresetEntry("medium", 80, description="Ahead of training, still preemptible unless set."),
        PresetEntry("medium-high", 90, description="Highest level that is preemptible unless set."),
        PresetEntry("high", 125, description="Interactive work by default; non-preemptible unless set."),
        PresetEntry("very-high", 150, description="Inference by default; non-preemptible unless set."),
    ),
)

RUNAI_LEGACY: Final = Preset(
    "runai-legacy",
    "Run:ai up to 2.21, four levels",
    "Run:ai legacy",
    (
        PresetEntry("train", 50, description="Training of older Run:ai versions."),
        PresetEntry("build-preemptible", 75, description="Interactive work that may be evicted."),
        PresetEntry("build", 100, description="Interactive work."),
        PresetEntry("inference", 125, description="Inference."),
    ),
    (
        "KAI still ships these names. Run:ai up to 2.21 said interactive-preemptible for build-preemptible.",
        "build is exactly 100, and exactly 100 is non-preemptible.",
        "inference has the value of high: where high is offered it becomes an alias of it.",
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
        PresetEntry("gpu-interactive", 200, "Never", "Notebooks; evicts nobody."),
    ),
    (
        "All four values are 100 or more: by the threshold even notebooks would be non-preemptible, so say for every "
        "category or type whether it may be evicted.",
        "Training stands above serving here; Run:ai's own order is Deploy, Build, Train.",
        "Never on gpu-interactive stops it from evicting others. It protects nothing.",
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
        PresetEntry("normal", 80, description="Ordinary work."),
        PresetEntry("scavenger", 25, description="Only what is left over."),
    ),
    (
        "The source gives no numbers: 125, 80 and 25 are Rung's proposal.",
        "Beside the seven Run:ai levels the values are taken: the three become aliases of high, medium and very-low.",
        "Priority and preemptibility stay two settings: scavenger orders the queue, preemptible allows the eviction.",
    ),
)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {preset.name: preset for preset in (RUNAI, RUNAI_LEGACY, FOUR_TIERS, THREE_TIERS)}
)
