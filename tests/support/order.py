"""In which order a run takes its tests, and which of them stay with one worker of pytest-xdist.

What waits most, for clusters and processes, comes first. Of three workers on two cores the first begins at the other
end, with what computes, so that the cores are in use while the others wait. What shares a real cluster is one unit,
taken whole by one worker, so that no cluster is started twice. Everything else is a unit per module, in the order that
the run's seed says, but for the modules that compute longest: they are at that other end. So the workers meet at short
modules, and none ends long before another.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

UNITS: Final[Sequence[Sequence[str]]] = (
    ("tests/faults/test_process_stack.py",),
    ("tests/faults/",),
    ("tests/portal/demo/test_main_job.py", "tests/portal/demo/test_kill_minus_nine.py"),
    ("tests/portal/demo/test_lab.py",),
    (
        "tests/real/test_kueue.py",
        "tests/real/test_kueue_evictions.py",
        "tests/real/test_statements_on_kueue.py",
        "tests/real/test_switch_to_kueue.py",
    ),
    ("tests/real/test_soak.py",),
    ("tests/real/test_gangs.py", "tests/real/test_model_agrees_with_gangs.py"),
    ("tests/real/test_model_agrees_with_kueue.py",),
    ("tests/real/test_other_schedulers.py", "tests/real/test_switch.py"),
    ("tests/real/test_model_agrees_with_kube_scheduler.py", "tests/real/test_eviction_matrix.py"),
    (
        "tests/lab/",
        "tests/clusters/backends/test_gateway_contract.py",
        "tests/clusters/backends/test_kubernetes_updates.py",
        "tests/clusters/connection/test_rights.py",
        "tests/real/test_observing.py",
    ),
    ("tests/real/",),
    ("tests/browser/test_every_page.py",),
    ("tests/portal/test_outages.py",),
    ("tests/portal/demo/test_script_contract.py",),
    ("tests/portal/kit/messaging/test_brokers.py",),
    ("tests/portal/kit/messaging/test_consumer_heartbeat.py",),
    ("tests/browser/",),
    ("tests/clusters/sync/reconcile/test_real_api_server.py", "tests/clusters/connection/test_admission_policy.py"),
)
"""What waits most comes first. A path is a module or, with a slash, a folder; the first unit that has it counts."""

LAST: Final = (
    "tests/portal/kit/api/test_route_matrix.py",
    "tests/clusters/connection/test_hostile_server.py",
    "tests/workloads/forecast/test_min_runtime_guard.py",
    "tests/workloads/forecast/test_forecasts_come_true.py",
    "tests/workloads/forecast/test_observed_cluster.py",
    "tests/cli/test_apply.py",
    "tests/cli/test_apply_kinds.py",
    "tests/portal/kit/api/test_fuzzing.py",
)
"""What computes for more than half a minute, the longest at the very end."""


def place_of(nodeid: str) -> int:
    """Which unit, counted from 0; one past the last for everything that is in none."""
    return next((place for place, unit in enumerate(UNITS) if nodeid.startswith(tuple(unit))), len(UNITS))


def unit_of(nodeid: str) -> str:
    """What one worker takes whole."""
    place = place_of(nodeid)
    return UNITS[place][0] if place < len(UNITS) else nodeid.partition("::")[0]


class ByUnit(LoadScopeScheduling):
    """Gives each worker whole units: the first worker from the end of the order, the others from its beginning."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if len(self.nodes) > 1 and node is self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Where `--dist loadscope` was asked for: by units, and not by their number of tests."""
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return ByUnit(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Units in their order, with their modules as they stand there; everything else as it was, and `LAST` last."""
    items.sort(key=lambda item: _turn_of(item.nodeid))


def _turn_of(nodeid: str) -> tuple[int, int]:
    place = place_of(nodeid)
    unit = UNITS[place] if place < len(UNITS) else ()
    if nodeid.startswith(LAST):
        return place + 1, next(turn for turn, path in enumerate(LAST) if nodeid.startswith(path))
    return place, next((turn for turn, path in enumerate(unit) if nodeid.startswith(path)), 0)
