"""What happened in the demo so far, act by act: who submitted, stopped or deleted what, and how long ago. Pure data."""

from dataclasses import dataclass
from typing import Final

AUTOMATION: Final = "demo-automation"
NON: Final = "non-preemptible"


@dataclass(frozen=True, slots=True)
class Job:
    """One submission. `hours` None: it runs until it is stopped; `fails`: its program ends with exit code 1."""

    name: str
    project: str
    by: str
    type: str
    gpus: int
    hours: float | None = None
    workers: int = 1
    priority: str = ""
    preemptibility: str = ""
    pool: str = "h100"
    checkpoint_minutes: int = 0
    fails: bool = False


@dataclass(frozen=True, slots=True)
class StoryAct:
    """What people did, `hours` before the next act."""

    hours: float
    submits: tuple[Job, ...] = ()
    stops: tuple[str, ...] = ()
    resumes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


STORY: Final = (
    StoryAct(
        9,
        submits=(
            Job("chat-serving", "llm-team", "alice", "Inference", 4),
            Job("tokenizer-notebook", "llm-team", "bob", "Workspace", 1),
            Job("pretrain-warmup", "llm-team", "alice", "Distributed", 8, 8.5, workers=2, checkpoint_minutes=30),
            Job("embedding-sweep", "nlp-lab", AUTOMATION, "Training", 8, 6),
            Job("asr-baseline", "speech", AUTOMATION, "Training", 8, 4),
            Job("detector-v3", "vision-team", "charlie", "Training", 8, 7),
            Job("labeling-notebook", "vision-team", "charlie", "Workspace", 2),
            Job("grasp-policy", "robotics", "charlie", "Training", 4, 5),
            Job("rerank-serving", "nlp-lab", AUTOMATION, "Inference", 2, pool="a100"),
            Job("depth-serving", "vision-team", "charlie", "Inference", 4, pool="a100"),
            Job("sim-to-real", "robotics", "charlie", "Training", 8, 3, pool="a100"),
        ),
    ),
    StoryAct(
        5.7,
        submits=(
            Job("asr-large", "speech", AUTOMATION, "Distributed", 8, 40, workers=4, checkpoint_minutes=45),
            Job("summarizer-ft", "nlp-lab", AUTOMATION, "Training", 8, 5),
            Job("instruct-tune", "llm-team", "bob", "Distributed", 8, 9.5, workers=2, checkpoint_minutes=20),
            Job("reward-model", "llm-team", "alice", "Training", 8, 4),
            Job("pose-estimation", "vision-team", "charlie", "Training", 8, 3, pool="a100"),
            Job("typo-in-entrypoint", "llm-team", "bob", "Job", 1, 0.05, priority="low", fails=True),
            Job("audio-features", "speech", AUTOMATION, "Training", 4, 2, pool="a100"),
            Job("retriever-train", "nlp-lab", AUTOMATION, "Training", 8, 26, pool="a100"),
        ),
        stops=("labeling-notebook",),
    ),
    StoryAct(
        3.2,
        submits=(
            # perception takes back what speech has borrowed
            Job(
                "segmentation-train",
                "vision-team",
                "charlie",
                "Distributed",
                8,
                20,
                workers=2,
                preemptibility=NON,
            ),
            Job("wakeword", "speech", AUTOMATION, "Training", 2, 30, pool="a100"),
            Job("rlhf-rollouts", "llm-team", "alice", "Training", 8, 22),
            Job("data-dedup", "nlp-lab", AUTOMATION, "Job", 4, 1.5, priority="medium", pool="a100"),
            Job("out-of-memory", "robotics", "charlie", "Job", 1, 0.1, priority="medium-low", fails=True),
            Job("old-experiment", "llm-team", "bob", "Training", 1, 9),
        ),
    ),
    StoryAct(
        1.4,
        submits=(
            # inside one queue: a higher priority evicts a lower one
            Job("urgent-eval", "llm-team", "alice", "Training", 8, 30, priority="high"),
            Job("lidar-fusion", "robotics", "charlie", "Training", 8, 12),
            Job("notebook-ablation", "llm-team", "bob", "Workspace", 1, pool="a100"),
            Job("mesh-recon", "vision-team", "charlie", "Training", 8, 16, pool="a100"),
            Job("speaker-id", "speech", AUTOMATION, "Training", 8, 14, pool="a100"),
            Job("grammar-check", "nlp-lab", AUTOMATION, "Training", 4, 1.2, pool="a100"),
        ),
        stops=("old-experiment",),
    ),
    StoryAct(
        0.4,
        submits=(
            Job("planner-serving", "robotics", "charlie", "Inference", 8, workers=1),
            Job("vla-finetune", "robotics", "charlie", "Training", 8, 10, preemptibility=NON),
            Job("moe-pretrain", "nlp-lab", AUTOMATION, "Distributed", 8, 48, workers=8, checkpoint_minutes=30),
            Job("speech-serving", "speech", AUTOMATION, "Inference", 2),
            Job("night-batch", "vision-team", "charlie", "Training", 8, 9, priority="very-low"),
            Job("captioner", "vision-team", "charlie", "Training", 4, 7),
        ),
        deletes=("audio-features",),
    ),
)
