"""Why a pod group waits: a reason code with its numbers. Sentences are left to callers."""

from dataclasses import dataclass, field
from enum import StrEnum

from scheduling.model.resources import UNLIMITED, ZERO, Limit, Resources


class Reason(StrEnum):
    """Codes as KAI writes them where KAI has a word, as Kueue does where only Kueue has one.

    LargerThanDeserved goes with WaitingForQuota: nobody is evicted for a request that its queue never deserved.
    """

    OVER_LIMIT = "OverLimit"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
    NO_ROOM = "NoRoom"
    NEVER_FITS = "NeverFits"
    NO_SUCH_POOL = "NoSuchPool"
    QUEUE_MISSING = "QueueMissing"
    PREEMPTION_NEVER = "PreemptionNever"
    EVICTING = "Evicting"
    GANG_INCOMPLETE = "GangIncomplete"
    NO_DOMAIN = "NoDomain"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    LARGER_THAN_DESERVED = "LargerThanDeserved"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """A refusal for now. `also` lists further reasons that hold at the same time.

    needed: what the pod group asks for now. queue, allowed, used, missing: the queue that says no, its bound, what
    counts against the bound, and the part over it. free: unused in the node pool.
    lacking: the dimensions of which the nodes have too little; largest_free: on the node that has most of those and
    room for the rest of what a pod asks for; beside: other nodes have enough of them, but not of the rest.
    topology: the node label of which it wants one value; domain: the one with most room, and largest_domain that room.
    fitting: how many of its pods would find a node, in the best domain of its topology (told of Kueue alone).
    """

    reason: Reason
    needed: Resources = ZERO
    queue: str | None = None
    allowed: Limit = UNLIMITED
    used: Resources = ZERO
    missing: Resources = ZERO
    free: Resources = ZERO
    largest_free: Resources = ZERO
    lacking: tuple[str, ...] = ()
    beside: bool = False
    pool: str | None = None
    topology: str | None = None
    domain: str = ""
    largest_domain: Resources = ZERO
    fitting: int = 0
    also: tuple[Reason, ...] = field(default=())

    @property
    def short(self) -> tuple[str, ...]:
        """The dimensions that say no: more of these alone, and this refusal would be gone."""
        return self.missing.dimensions or self.lacking

    def numbers(self) -> dict[str, str]:
        """The figures that explain the reason, as texts ("4 GPU")."""
        shown: dict[str, object] = {"needed": self.needed}
        if self.queue is not None:
            shown |= {"queue": self.queue, "used": self.used, "allowed": self.allowed, "missing": self.missing}
        if self.pool is not None:
            shown |= {"pool": self.pool, "free": self.free, "largest_free": self.largest_free}
        if self.topology is not None:
            shown |= {"topology": self.topology, "domain": self.domain, "largest_domain": self.largest_domain}
        if self.short:
            shown |= {"short": ", ".join(self.short)}
        return {name: str(value) for name, value in shown.items()}
