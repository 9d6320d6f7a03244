"""A running demo per file: the files are independent of each other and may run at the same time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portal.demo.installation import Demo

HERE = Path(__file__).parent
SECONDS = 480


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder asks over sockets, and the first of a file also waits for its demo."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.enable_socket)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="module")
def speed() -> int:
    """How many times faster the demo's cluster lives; files may say otherwise."""
    return 60


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, speed: int) -> Iterator[Demo]:
    """A demo that is ready. Nothing of it is left afterwards."""
    demo = Demo(tmp_path_factory.mktemp("demo") / "data", speed=speed)
    try:
        demo.start()
        yield demo
    finally:
        demo.throw_away()
