"""Refusals of the model as people read them."""

import pytest

from portal.kit.pages.formatting import gpus_text
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Limit, Resources
from workloads.forecast.rules.messages import pend_sentence

LABELS = {"q": "project llm-team", "d": "department research", "g": "large (32 GPUs)"}
EIGHT = Resources.of(gpu=8)
FOUR = Resources.of(gpu=4)
ONE = Resources.of(cpu=1)
LACKING = ("gpu",)


@pytest.mark.parametrize(
    ("pend", "words"),
    [
        pytest.param(
            PendingReason(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                EIGHT,
                "q",
                Limit.of(gpu=8),
                Resources.of(gpu=6),
                Resources.of(gpu=6),
            ),
            "needs 8 GPUs in h100; 2 of the 8 GPUs that project llm-team deserves are free, and non-preemptible "
            "workloads cannot go over quota",
            id="deserved GPUs",
        ),
        pytest.param(
            PendingReason(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                Resources.of(gpu=8, cpu=2),
                "q",
                Limit.of(cpu=4),
                Resources.of(cpu=3),
                Resources.of(cpu="500m"),
            ),
            "needs 2 CPUs in h100; 1 of the 4 CPUs that project llm-team deserves is free, and non-preemptible "
            "workloads cannot go over quota",
            id="deserved CPU",
        ),
        pytest.param(
            PendingReason(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                Resources.of(memory="4Gi"),
                "q",
                Limit.of(memory="8Gi"),
                Resources.of(memory="6Gi"),
                Resources.of(memory="2Gi"),
            ),
            "needs 4 GiB in h100; 2 GiB of the 8 GiB that project llm-team deserves are free, and non-preemptible "
            "workloads cannot go over quota",
            id="deserved memory",
        ),
        pytest.param(
            PendingReason(Reason.OVER_LIMIT, EIGHT, "q", Limit.of(gpu=12), EIGHT, Resources.of(gpu=4)),
            "needs 8 GPUs in h100; project llm-team uses 8 GPUs of its limit of 12 GPUs",
            id="the limit",
        ),
        pytest.param(
            PendingReason(
                Reason.OVER_LIMIT,
                EIGHT,
                "q",
                Limit.of(gpu=12),
                EIGHT,
                FOUR,
                then=PendingReason(Reason.NO_ROOM, EIGHT, pool="h100", free=FOUR, largest_free=FOUR, lacking=("gpu",)),
            ),
            "needs 8 GPUs in h100; project llm-team uses 8 GPUs of its limit of 12 GPUs. Even without that limit it "
            "waits: 4 GPUs free, at most 4 on one node, and the scheduler finds no evictions that would free enough "
            "for it",
            id="the limit and no room",
        ),
        pytest.param(
            PendingReason(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                EIGHT,
                "q",
                Limit.of(gpu=8),
                Resources.of(gpu=6),
                Resources.of(gpu=6),
                then=PendingReason(Reason.OVER_LIMIT, EIGHT, "d", Limit.of(gpu=8), EIGHT, EIGHT),
            ),
            "needs 8 GPUs in h100; 2 of the 8 GPUs that project llm-team deserves are free, and non-preemptible "
            "workloads cannot go over quota. Even with enough quota it waits: department research uses 8 GPUs of its "
            "limit of 8 GPUs",
            id="deserved GPUs and the department's limit",
        ),
        pytest.param(
            PendingReason(
                Reason.OVER_LIMIT, EIGHT, "q", Limit.of(gpu=12), EIGHT, FOUR, then=PendingReason(Reason.EVICTING, EIGHT)
            ),
            "needs 8 GPUs in h100; project llm-team uses 8 GPUs of its limit of 12 GPUs. Even without that limit it "
            "has its place in h100 and waits for evicted pods to stop",
            id="the limit and evicted pods",
        ),
        pytest.param(
            PendingReason(Reason.NO_ROOM, EIGHT, pool="h100", free=EIGHT, largest_free=FOUR, lacking=("gpu",)),
            "needs 8 GPUs in h100; 8 GPUs free, at most 4 on one node, and the scheduler finds no "
            "evictions that would free enough for it",
            id="no room",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_ROOM, EIGHT, pool="h100", free=FOUR, largest_free=FOUR, lacking=("gpu",), behind=("g",)
            ),
            "needs 8 GPUs in h100; 4 GPUs free, at most 4 on one node, and it is behind large (32 GPUs) in its queue, "
            "which waits too. First in its queue, it would start after evictions",
            id="behind one in its queue",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_ROOM, EIGHT, pool="h100", free=FOUR, largest_free=FOUR, lacking=("gpu",), behind=("x", "g")
            ),
            "needs 8 GPUs in h100; 4 GPUs free, at most 4 on one node, and it is behind another workload and 1 more in "
            "its queue, which wait too. First in its queue, it would start after evictions",
            id="behind several in its queue",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_ROOM,
                Resources.of(gpu=1, cpu=64),
                pool="h100",
                free=Resources.of(gpu=7, cpu=28),
                largest_free=Resources.of(gpu=4, cpu=14),
                lacking=("cpu",),
            ),
            "needs 64 CPUs in h100; 28 CPUs free, at most 14 on one node, and the scheduler finds no "
            "evictions that would free enough for it",
            id="CPUs beside free GPUs",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_ROOM,
                Resources.of(gpu=1, memory=600 * 2**30 + 1),
                pool="h100",
                free=Resources.of(gpu=7, memory="900Gi"),
                largest_free=Resources(memory=600 * 2**30 - 1),
                lacking=("memory",),
                beside=True,
            ),
            "needs 600.1 GiB in h100; 900 GiB free, at most 599.9 GiB on a node that fits its other requests, and "
            "the scheduler finds no evictions that would free enough for it",
            id="memory on a node with GPUs",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_ROOM,
                Resources.of(gpu=2, cpu=4),
                pool="h100",
                free=Resources.of(gpu=1, cpu=2),
                largest_free=Resources.of(gpu=1, cpu=2),
                lacking=("cpu", "gpu"),
            ),
            "needs 2 GPUs and 4 CPUs in h100; 1 GPU and 2 CPUs free, at most 1 GPU and 2 CPUs on one node, and the "
            "scheduler finds no evictions that would free enough for it",
            id="both",
        ),
        pytest.param(
            PendingReason(Reason.NO_ROOM, EIGHT, pool="h100", free=EIGHT, largest_free=EIGHT, lacking=("pods",)),
            "needs 8 GPUs in h100; the nodes with enough free GPUs are at their pod limit, and the scheduler finds "
            "no evictions that would free enough for it",
            id="nodes full of pods",
        ),
        pytest.param(
            PendingReason(Reason.NO_ROOM, EIGHT, pool="h100", free=FOUR, largest_free=FOUR, lacking=("gpu", "pods")),
            "needs 8 GPUs in h100; 4 GPUs free, at most 4 on one node; other nodes are at their pod limit, and the "
            "scheduler finds no evictions that would free enough for it",
            id="some nodes full of pods",
        ),
        pytest.param(
            PendingReason(Reason.NO_ROOM, EIGHT, pool="h100"),
            "needs 8 GPUs in h100, where no node that it may use is ready",
            id="no node that is ready",
        ),
        pytest.param(
            PendingReason(Reason.NEVER_FITS, EIGHT, pool="h100", free=EIGHT, lacking=("pods",)),
            "needs 8 GPUs in h100, and more pods than its nodes allow",
            id="more pods than the nodes may run",
        ),
        pytest.param(
            PendingReason(Reason.NEVER_FITS, EIGHT, pool="h100"),
            "needs 8 GPUs in h100, and a node with labels and taints that do not exist there",
            id="no node for it",
        ),
        pytest.param(
            PendingReason(
                Reason.NEVER_FITS,
                Resources.of(gpu=1, cpu=128),
                pool="h100",
                free=Resources.of(cpu=320),
                largest_free=Resources.of(cpu=64),
                lacking=("cpu",),
                beside=True,
            ),
            "needs 128 CPUs, which h100 cannot place even if nothing else runs there: 320 CPUs in total, 64 on a node "
            "that fits its other requests",
            id="never for want of CPUs",
        ),
        pytest.param(
            PendingReason(
                Reason.OVER_LIMIT,
                Resources.of(gpu=1, cpu=64),
                "q",
                Limit.of(gpu=8, cpu=80),
                Resources.of(gpu=1, cpu=28),
                Resources.of(cpu=12),
            ),
            "needs 64 CPUs in h100; project llm-team uses 28 CPUs of its limit of 80 CPUs",
            id="the limit of CPUs",
        ),
        pytest.param(
            PendingReason(
                Reason.PREEMPTION_NEVER, Resources.of(cpu=2), pool="h100", free=ONE, largest_free=ONE, lacking=("cpu",)
            ),
            "needs 2 CPUs in h100; 1 CPU free, at most 1 on one node, and its priority never evicts others",
            id="a priority that evicts nobody",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_DOMAIN,
                EIGHT,
                pool="h100",
                free=EIGHT,
                lacking=LACKING,
                topology="rack",
                domain="r1",
                largest_domain=FOUR,
            ),
            "needs 8 GPUs in h100 on nodes with the same rack; 8 GPUs free, at most 4 GPUs in one domain (r1), "
            "and nothing is evicted for it",
            id="a topology key",
        ),
        pytest.param(
            PendingReason(
                Reason.NO_DOMAIN,
                EIGHT,
                pool="h100",
                lacking=LACKING,
                topology="rack",
                domain="r1",
                also=(Reason.NEVER_FITS,),
            ),
            "needs 8 GPUs in h100 on nodes with the same rack; 0 GPUs free, at most 0 GPUs in one domain (r1), "
            "and no domain is large enough even when empty",
            id="more than any domain",
        ),
        pytest.param(
            PendingReason(Reason.NO_DOMAIN, EIGHT, pool="h100", free=EIGHT, topology="rack", also=(Reason.NEVER_FITS,)),
            "needs 8 GPUs in h100 on nodes with the same rack; no ready node has this label",
            id="no domain",
        ),
        pytest.param(
            PendingReason(
                Reason.NEVER_FITS, Resources.of(gpu=16), pool="h100", free=EIGHT, largest_free=EIGHT, lacking=LACKING
            ),
            "needs 16 GPUs, more than h100 has: 8 GPUs in total, 8 on its largest node",
            id="never",
        ),
        pytest.param(
            PendingReason(Reason.WAITING_FOR_QUOTA, EIGHT, "q", Limit.of(gpu=8), EIGHT, Resources.of(gpu=6)),
            "needs 8 GPUs in h100; project llm-team has 2 GPUs of quota free, and the scheduler finds "
            "no evictions that would free enough for it",
            id="unused quota",
        ),
        pytest.param(
            PendingReason(
                Reason.WAITING_FOR_QUOTA,
                EIGHT,
                "q",
                Limit.of(gpu=4),
                EIGHT,
                EIGHT,
                also=(Reason.LARGER_THAN_DESERVED,),
            ),
            "needs 8 GPUs in h100; project llm-team has 0 GPUs of quota free, and requests above the 4 GPUs that "
            "it deserves never evict others",
            id="more than its whole quota",
        ),
        pytest.param(
            PendingReason(Reason.EXCEEDS_MAX_QUOTA, EIGHT, "q", Limit.of(gpu=6), missing=Resources.of(gpu=2)),
            "needs 8 GPUs in h100; project llm-team can use at most 6 GPUs there, including borrowed quota",
            id="more than all it may borrow",
        ),
        pytest.param(
            PendingReason(Reason.EVICTING, EIGHT),
            "has its place in h100 and waits for evicted pods to stop",
            id="evicting",
        ),
        pytest.param(
            PendingReason(Reason.NO_SUCH_POOL, EIGHT),
            "waits for the node pool h100, which has no nodes",
            id="an empty pool",
        ),
        pytest.param(
            PendingReason(Reason.QUEUE_MISSING, EIGHT),
            "waits for its queue in h100, which does not exist in the cluster yet",
            id="no queue yet",
        ),
    ],
)
def test_every_reason_is_said_with_its_numbers(pend: PendingReason, words: str) -> None:
    assert pend_sentence(pend, pool="h100", labels=LABELS) == words


@pytest.mark.parametrize(("milli", "words"), [(1000, "1 GPU"), (500, "0.5 GPUs"), (8000, "8 GPUs"), (0, "0 GPUs")])
def test_gpus_have_their_unit(milli: int, words: str) -> None:
    assert gpus_text(milli) == words
