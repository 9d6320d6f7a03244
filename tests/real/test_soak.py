"""What is predicted of random workloads comes true on real schedulers, with pods that take their grace to go.

RUNG_SOAK: how many steps (12); RUNG_REALITY_SEED: from which seed. A step that came otherwise is printed with what was
said of it: the same seed plays the same steps again.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from clusters.ports.gateway import Kind
from clusters.ports.objects import KAI_POD_GROUP, KUEUE_WORKLOAD
from tests.clusters.watch.streaming import streaming
from tests.real.product import Product
from tests.real.queued import with_kueue
from tests.real.soak import Soak, Step
from tests.support.lab import Kept, LabCluster, own_cluster
from tests.support.real import by_hand

STEPS = int(os.environ.get("RUNG_SOAK", "12"))
SEED = int(os.environ.get("RUNG_REALITY_SEED", "0"))
AGREE = 0.95

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket, pytest.mark.timeout(300 + 30 * STEPS)]


def with_kube() -> AbstractContextManager[LabCluster]:
    """A control plane with the default scheduler."""
    return own_cluster()


def with_kueue_and_pods() -> AbstractContextManager[LabCluster]:
    """A control plane on which Kueue queues everything that the soak submits."""
    return with_kueue("--kueue-pods")


def with_kai() -> AbstractContextManager[LabCluster]:
    """A control plane on which KAI runs as it ships."""
    by_hand("LAB_KAI_BIN", "KAI 0.17.0")
    return own_cluster("--kai", flavour="kai")


CLUSTERS: dict[str, tuple[Callable[[], AbstractContextManager[LabCluster]], tuple[Kind, ...]]] = {
    "kube": (with_kube, ()),
    "kueue": (with_kueue_and_pods, (KUEUE_WORKLOAD,)),
    "kai": (with_kai, (KAI_POD_GROUP,)),
}


@pytest.fixture(params=list(CLUSTERS))
def product(request: pytest.FixtureRequest, kept: Kept, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on a small cluster of each scheduler, under the account of few rights."""
    start, kinds = CLUSTERS[request.param]
    product = Product(kept.cluster(start), uuid.uuid4().hex[:6], request.param)
    yield product
    product.end(*kinds)


def judged(steps: list[Step]) -> str:
    """What is not as it should be: too many came otherwise, or one without a caution that says why it might."""
    otherwise = [step for step in steps if not step.agrees]
    few = len(otherwise) <= max(1, len(steps) * (1 - AGREE))
    if few and all(step.cautions for step in otherwise):
        return ""
    return "\n".join([f"{len(otherwise)} of {len(steps)} came otherwise than predicted", *map(str, otherwise)])


def test_random_workloads_fare_as_predicted(
    product: Product, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    steps, out = [], pytestconfig.get_terminal_writer()
    with streaming(product.cluster, product.gateway) as watching, capsys.disabled():
        for step in Soak(product, watching, SEED).run(STEPS):
            steps.append(step)
            out.line(f"{product.cluster.flavour} seed {SEED} {step}")
        agreeing = sum(step.agrees for step in steps)
        out.line(f"{product.cluster.flavour} seed {SEED}: {agreeing} of {len(steps)} came as predicted")
    assert not judged(steps), judged(steps)
