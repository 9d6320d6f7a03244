"""Which pods a taint keeps away."""

import pytest

from scheduling.model.snapshot import Taint, Toleration, welcome

GPU = Taint("nvidia.com/gpu", "present")


@pytest.mark.parametrize(
    ("toleration", "borne"),
    [
        pytest.param(Toleration("nvidia.com/gpu", value="present"), True, id="the same key and value"),
        pytest.param(Toleration("nvidia.com/gpu", value="absent"), False, id="another value"),
        pytest.param(Toleration("nvidia.com/gpu", "Exists"), True, id="any value"),
        pytest.param(Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"), True, id="the same effect"),
        pytest.param(Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration("other", "Exists"), False, id="another key"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
    ],
)
def test_a_toleration_bears_what_it_names(toleration: Toleration, *, borne: bool) -> None:
    assert toleration.bears(GPU) is borne
    assert welcome([GPU], [toleration]) is borne


def test_every_taint_needs_its_toleration() -> None:
    assert welcome([], [])
    assert not welcome([GPU, Taint("team")], [Toleration("team")])
    assert welcome([GPU, Taint("team")], [Toleration("team"), Toleration("nvidia.com/gpu", "Exists")])
