"""Previews on a simulated Volcano, in which an evicted workload may be served first once it is submitted again."""

import pytest

from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import pytorch_job, spec_of
from tests.support.repository import ROOT
from tests.workloads.sandbox_lab import Lab, configure
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.forecast.selectors.preview import forecast

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("workers", "doubts"), [(3, True), (0, False)])
def test_a_gang_that_starts_over_whole_may_be_served_before_what_reclaimed_from_it(
    workers: int, *, doubts: bool
) -> None:
    """Without the gang its queue uses nothing. A queue that keeps using more than the other is served later."""
    lab = Lab("volcano", nodes=4)
    configure(lab, (ROOT / "lab" / "volcano.conf").read_text(encoding="utf-8"))
    large, small = lab.project("a-large", deserved=8), lab.project("b-small", deserved=16)
    if not workers:
        for number in range(3):
            lab.submit(large, f"pod-{number}", gpus=8, priority="medium")
    lab.submit(large, "gang", manifest=pytorch_job("gang", gpus=8, workers=workers), priority="low")
    lab.settle()
    wanted = spec_of(pytorch_job("wanted", gpus=8), priority="low", namespace=small.namespace)
    found = forecast(spec=wanted, project=small, actor=SYSTEM)
    assert (found.verdict, len(found.victims)) == (Verdict.RECLAIMS, 1)
    said = [each.sentence for each in found.doubts if each.code is DoubtCode.RIVALS_FIRST]
    assert bool(said) is doubts
    assert all(
        each.startswith("Once evicted work (gang) is submitted again, Volcano may start it before") for each in said
    )
