"""Why a pod group waits: a reason code with its numbers. Callers write the sentences."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scheduling.model.resources import UNLIMITED, ZERO, Limit, Resources


class Reason(StrEnum):
    """Reason codes of KAI; those of Kueue where only Kueue has one.

    LargerThanDeserved accompanies WaitingForQuota: a request above the deserved quota of its queue evicts nothing.
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


@dataclass(slots=True, unsafe_hash=True)
class PendingReason:
    """A refusal for now. `also` lists further reasons that hold at the same time.

    needed: the present request of the pod group. queue, allowed, used, missing: the refusing queue, its bound, the use
    that counts against it, and the excess. free: unused in the node pool.
    lacking: resources of which the nodes have too little; largest_free: most of them on a node that fits the rest of a
    pod; beside: whether other nodes have enough of them, but not of the rest.
    topology: the node label that must have one value; domain: the value with most free capacity, largest_domain.
    fitting: how many of its pods would fit, in the best topology domain (Kueue only).
    second: with a limit, the deserved quota that refuses its non-preemptible work as well.
    then: with a quota or limit, why it would wait with as much more as is missing; None: it would not, or not known.
    behind: pod groups that wait ahead of it in its queue, the next one first, where others would be evicted for it if
    it were the first (KAI: the first group decides the turn of its queue).
    """

    reason: Final[Reason]
    needed: Final[Resources] = ZERO
    queue: Final[str | None] = None
    allowed: Final[Limit] = UNLIMITED
    used: Final[Resources] = ZERO
    missing: Final[Resources] = ZERO
    free: Final[Resources] = ZERO
    largest_free: Final[Resources] = ZERO
    lacking: Final[tuple[str, ...]] = ()
    beside: Final[bool] = False
    pool: Final[str | None] = None
    topology: Final[str | None] = None
    domain: Final[str] = ""
    largest_domain: Final[Resources] = ZERO
    fitting: Final[int] = 0
    also: Final[tuple[Reason, ...]] = field(default=())
    second: "Final[PendingReason | None]" = None
    then: "Final[PendingReason | None]" = None
    behind: Final[tuple[str, ...]] = ()

    @property
    def never_fits(self) -> bool:
        """Whether its pods do not even fit the empty node pool: neither quota nor evictions let it start."""
        return Reason.NEVER_FITS in {self.reason, *self.also}

    @property
    def code(self) -> Reason:
        """The reason to show: what never ends outweighs what may end."""
        return Reason.NEVER_FITS if self.never_fits else self.reason

    @property
    def short(self) -> tuple[str, ...]:
        """The resources that cause the refusal: more of these alone would remove it."""
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
        if self.then:
            shown |= {"then": self.then.code}
            shown |= {"pool": self.then.pool, "free": self.then.free} if self.then.pool is not None else {}
        if self.behind:
            shown |= {"behind": self.behind[0]}
        return {name: str(value) for name, value in shown.items()}
