"""Refusals of the model as people read them."""

from datetime import timedelta

import pytest

from scheduling.reasons import Pend, Reason
from scheduling.resources import Limit, Resources
from workloads.sentences import duration_text, gpus_text, pend_sentence

LABELS = {"q": "project llm-team"}
EIGHT = Resources.of(gpu=8)
FOUR = Resources.of(gpu=4)


@pytest.mark.parametrize(
    ("pend", "words"),
    [
        pytest.param(
            Pend(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                EIGHT,
                "q",
                Limit.of(gpu=8),
                Resources.of(gpu=6),
                Resources.of(gpu=6),
            ),
            "needs 8 GPUs in h100; 2 of the 8 GPUs that project llm-team deserves are free, "
            "and non-preemptible work may not go over quota",
            id="deserved GPUs",
        ),
        pytest.param(
            Pend(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                EIGHT,
                "q",
                Limit.of(cpu=4),
                Resources.of(cpu=3),
                Resources.of(cpu="500m"),
            ),
            "needs 8 GPUs in h100; 1 CPU of the 4 CPU that project llm-team deserves are free, "
            "and non-preemptible work may not go over quota",
            id="deserved CPU",
        ),
        pytest.param(
            Pend(
                Reason.NON_PREEMPTIBLE_OVER_QUOTA,
                Resources.of(memory="4Gi"),
                "q",
                Limit.of(memory="8Gi"),
                Resources.of(memory="6Gi"),
                Resources.of(memory="2Gi"),
            ),
            "needs 4Gi memory in h100; 2 GiB of the 8Gi memory that project llm-team deserves are free, "
            "and non-preemptible work may not go over quota",
            id="deserved memory",
        ),
        pytest.param(
            Pend(Reason.OVER_LIMIT, EIGHT, "q", Limit.of(gpu=12), EIGHT, Resources.of(gpu=4)),
            "needs 8 GPUs in h100; project llm-team holds 8 GPUs of its limit of 12 GPUs",
            id="the limit",
        ),
        pytest.param(
            Pend(Reason.NO_ROOM, EIGHT, pool="h100", free=EIGHT, largest_free=Resources.of(gpu=4)),
            "needs 8 GPUs in h100; 8 GPUs free, at most 4 on one node, and nothing there may be evicted for it",
            id="no room",
        ),
        pytest.param(
            Pend(Reason.PREEMPTION_NEVER, Resources.of(cpu=2), pool="h100", free=Resources.of(cpu=1)),
            "needs 2 CPU in h100; 1 CPU free, and its priority evicts nobody",
            id="a priority that evicts nobody",
        ),
        pytest.param(
            Pend(Reason.NO_DOMAIN, EIGHT, pool="h100", free=EIGHT, topology="rack", domain="r1", largest_domain=FOUR),
            "needs 8 GPUs on nodes of h100 with one value of rack; 8 GPUs free, at most 4 GPUs with one value (r1), "
            "and nobody is evicted for it",
            id="a topology key",
        ),
        pytest.param(
            Pend(Reason.NO_DOMAIN, EIGHT, pool="h100", topology="rack", domain="r1", also=(Reason.NEVER_FITS,)),
            "needs 8 GPUs on nodes of h100 with one value of rack; 0 GPUs free, at most 0 GPUs with one value (r1), "
            "and no value has so much even when all of its nodes are empty",
            id="more than any domain",
        ),
        pytest.param(
            Pend(Reason.NO_DOMAIN, EIGHT, pool="h100", free=EIGHT, topology="rack", also=(Reason.NEVER_FITS,)),
            "needs 8 GPUs on nodes of h100 with one value of rack; no ready node carries it",
            id="no domain",
        ),
        pytest.param(
            Pend(Reason.NEVER_FITS, Resources.of(gpu=16), pool="h100", free=EIGHT, largest_free=EIGHT),
            "needs 16 GPUs, more than h100 could ever give: 8 GPUs in all, 8 on its largest node",
            id="never",
        ),
        pytest.param(
            Pend(Reason.WAITING_FOR_QUOTA, EIGHT, "q", Limit.of(gpu=8), EIGHT, Resources.of(gpu=6)),
            "needs 8 GPUs in h100; of quota project llm-team has 2 GPUs free, and nobody there may be evicted for it",
            id="unused quota",
        ),
        pytest.param(
            Pend(
                Reason.WAITING_FOR_QUOTA,
                EIGHT,
                "q",
                Limit.of(gpu=4),
                EIGHT,
                EIGHT,
                also=(Reason.LARGER_THAN_DESERVED,),
            ),
            "needs 8 GPUs in h100; of quota project llm-team has 0 GPU free, "
            "and nobody is evicted for a request above the 4 GPUs that it deserves",
            id="more than its whole quota",
        ),
        pytest.param(
            Pend(Reason.EXCEEDS_MAX_QUOTA, EIGHT, "q", Limit.of(gpu=6), missing=Resources.of(gpu=2)),
            "needs 8 GPUs in h100; project llm-team can have at most 6 GPUs there, borrowed ones included",
            id="more than all it may borrow",
        ),
        pytest.param(
            Pend(Reason.EVICTING, EIGHT), "has its place in h100: it waits for the evicted to leave", id="evicting"
        ),
        pytest.param(
            Pend(Reason.NO_SUCH_POOL, EIGHT), "waits for the node pool h100, which has no nodes", id="an empty pool"
        ),
        pytest.param(
            Pend(Reason.QUEUE_MISSING, EIGHT),
            "waits for its queue in h100, which is not in the cluster yet",
            id="no queue yet",
        ),
    ],
)
def test_every_reason_is_said_with_its_numbers(pend: Pend, words: str) -> None:
    assert pend_sentence(pend, pool="h100", labels=LABELS) == words


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(seconds=30), "30 s"),
        (timedelta(minutes=14, seconds=5), "14 min"),
        (timedelta(hours=5, minutes=40), "5 h 40 m"),
        (timedelta(days=2, hours=3), "2 d 3 h"),
        (timedelta(seconds=-5), "0 s"),
    ],
)
def test_durations_are_human(span: timedelta, words: str) -> None:
    assert duration_text(span) == words


@pytest.mark.parametrize(("milli", "words"), [(1000, "1 GPU"), (500, "0.5 GPUs"), (8000, "8 GPUs"), (0, "0 GPUs")])
def test_gpus_have_their_unit(milli: int, words: str) -> None:
    assert gpus_text(milli) == words
