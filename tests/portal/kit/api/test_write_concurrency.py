"""One credential's burst of writes does not crowd out the requests of others."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from portal.kit.api.request_limits import WriteConcurrencyLimit

LIMIT = 2


class Application:
    """Holds every request until it is released, and records the most that ran at once."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most, self.done = 0, 0
        self.released = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], *_: Any) -> None:
        self.running.append(scope["path"])
        self.most = max(self.most, len(self.running))
        try:
            await self.released.wait()
            if scope["path"] == "/breaks":
                raise RuntimeError(scope["path"])
        finally:
            self.running.remove(scope["path"])
            self.done += 1


def request(path: str, *, method: str = "POST", key: str | None = "storm", kind: str = "http") -> dict[str, Any]:
    headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
    return {"type": kind, "method": method, "path": path, "headers": headers}


async def receive() -> dict[str, Any]:
    return {"type": "http.request"}


async def send(_: Mapping[str, Any]) -> None:
    return None


async def started(*scopes: dict[str, Any]) -> tuple[Application, list["asyncio.Task[None]"]]:
    """The application with every request on its way, as far as each may come."""
    application = Application()
    limit = WriteConcurrencyLimit(application, LIMIT)
    tasks = [asyncio.create_task(limit(scope, receive, send)) for scope in scopes]
    await asyncio.sleep(0.01)
    return application, tasks


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In a thread of its own: a browser test in this process leaves a running event loop in this one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(lambda: asyncio.run(scenario())).result()


def test_the_writes_of_one_credential_run_two_at_a_time_and_all_of_them_run() -> None:
    async def scenario() -> None:
        application, tasks = await started(*(request(f"/{number}") for number in range(10)))
        assert application.running == ["/0", "/1"]
        application.released.set()
        await asyncio.gather(*tasks)
        assert (application.most, application.done) == (LIMIT, 10)

    run(scenario)


def test_others_and_reads_do_not_wait_behind_a_burst() -> None:
    async def scenario() -> None:
        burst = [request(f"/{number}") for number in range(10)]
        others = [request("/other", key="other"), request("/read", method="GET"), request("/page", key=None)]
        application, tasks = await started(*burst, *others)
        assert application.running == ["/0", "/1", "/other", "/read", "/page"]
        application.released.set()
        await asyncio.gather(*tasks)

    run(scenario)


def test_a_write_that_breaks_gives_its_place_to_the_next() -> None:
    async def scenario() -> None:
        application, tasks = await started(*(request("/breaks") for _ in range(3)), request("/last"))
        application.released.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [RuntimeError, RuntimeError, RuntimeError, type(None)]

    run(scenario)
