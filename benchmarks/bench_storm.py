"""B11: a storm of submits of one project beside one submit a second of another, on the processes of production.

    python -m benchmarks.bench_storm [--submits 10000] [--clients 8] [--rate 0] [--quiet 60] [--sandbox] [--gpus 1]

PostgreSQL with durable commits, Redis, uvicorn with two workers, a worker of four prefork processes (and the worker of
periodic tasks), beat, observer, and a real API server of `lab/build`, or the sandbox. First the other project submits
alone, then beside the storm until every workload of both was handed over. Samples go to benchmarks/results/storm.json.
"""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"

import argparse
import json
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from benchmarks import stage
from benchmarks.load import read_answer, request
from tests.factories.workloads import job
from tests.portal.demo.web import Person
from tests.support.lab import furnish, own_lab, reached
from tests.support.processes import eventually, manage
from tests.support.stack import Stack

STORM, OTHER = "storm", "other"
PAGE = "/workloads/"
PASSWORD = "only-for-benchmarks"
IMAGE = "docker.io/library/python:3.14"
LIMITS_JOB = "workloads.limits"
LIMITS_EVERY = 30.0
MOST_RATIO, MOST_PAGE, MOST_GAP = 2.0, 0.3, 2 * LIMITS_EVERY
HANDED_OVER = """
SELECT extract(epoch FROM w.created_at)::float8, extract(epoch FROM min(e.at) - w.created_at)::float8
FROM workloads_workload w JOIN tenants_project p ON p.id = w.project_id
LEFT JOIN workloads_workloadevent e ON e.workload_id = w.id AND e.type = 'phase' AND e.phase <> 'Creating'
WHERE p.name = %s GROUP BY w.id ORDER BY 1
"""
WAITING = """
SELECT count(*) FROM workloads_workload WHERE deleted_at IS NULL AND phase <> 'Failed' AND applied_generation = 0
"""
CLAIMS = f"SELECT count(*) FROM core_period WHERE job = '{LIMITS_JOB}'"


@dataclass(slots=True)
class Watched:
    """Samples of once a second; moments are seconds since the epoch."""

    readiness: list[tuple[float, int, float]] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    enforced: list[float] = field(default_factory=list)
    waiting: list[tuple[float, int]] = field(default_factory=list)

    def longest_gap(self, begun: float, ended: float) -> float:
        """Seconds between two runs that enforce time limits, the begin and the end counted as runs."""
        moments = [begun, *(each for each in self.enforced if begun <= each <= ended), ended]
        return max(after - before for before, after in pairwise(moments))


class Submitter:
    """Builds submits of one project, every name once, and counts the answers by status."""

    def __init__(self, stack: Stack, token: str, project: dict[str, str], name: str, gpus: int) -> None:
        self.stack, self.project, self.name, self.gpus = stack, project, name, gpus
        self.headers = {"Authorization": f"Bearer {token}"}
        self.answers: Counter[str] = Counter()
        self.seconds: list[float] = []
        self._numbers, self._lock = count(), threading.Lock()

    def send_all(self, submits: int, rate: float) -> None:
        """So many over one connection; `rate` a second, however long answers take; 0: one after another."""
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.stack.port), timeout=120) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(submits):
                due = begun + number / rate if rate else time.monotonic()
                time.sleep(max(0.0, due - time.monotonic()))
                self._send(connection, due)

    def _send(self, connection: socket.socket, due: float) -> None:
        with self._lock:
            number = next(self._numbers)
        manifest = job(f"{self.name}-{number}", gpus=self.gpus)
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
        body = json.dumps({"metadata": {"projectId": self.project["id"]}, "manifest": manifest}).encode()
        connection.sendall(request("/api/v2/workloads", body, self.headers))
        answer = read_answer(connection)
        with self._lock:
            self.answers[answer[9:12].decode()] += 1
            self.seconds.append(time.monotonic() - due)


class Watch:
    """Samples readiness, a page, the workloads that wait and the runs that enforce time limits."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.watched = stack, Watched()
        self.person = Person(stack.origin, "admin", PASSWORD)
        self.person.open(PAGE)
        self.claims = stack.rows(CLAIMS)[0][0]

    def ready(self) -> None:
        """`/readyz`: status and seconds."""
        status, _, seconds = self.stack.readiness()
        self.watched.readiness.append((time.time(), status, seconds))

    def page(self) -> None:
        """The list of workloads, as an admin sees it."""
        begun = time.monotonic()
        self.person.open(PAGE)
        self.watched.pages.append(time.monotonic() - begun)

    def rows(self) -> None:
        """What waits, and whether another period of the time limits was claimed."""
        if (claims := self.stack.rows(CLAIMS)[0][0]) > self.claims:
            self.watched.enforced.append(time.time())
            self.claims = claims
        self.watched.waiting.append((time.time(), self.stack.rows(WAITING)[0][0]))


@contextmanager
def watching(stack: Stack) -> Iterator[Watched]:
    """Each kind of sample once a second in a thread of its own: a slow one does not delay the others."""
    watch, stop = Watch(stack), threading.Event()

    def repeat(sample: Callable[[], None]) -> None:
        while not stop.wait(1.0):
            with suppress(OSError):
                sample()

    threads = [
        threading.Thread(target=repeat, args=(sample,), daemon=True) for sample in (watch.ready, watch.page, watch.rows)
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch.watched
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What `Stack.found` needs to know of the cluster: a real control plane with an account of few rights, or none."""
    if options.sandbox:
        yield {"nodes": 16}
        return
    with own_lab("storm") as kubeconfig:
        furnish(kubeconfig)
        with reached(kubeconfig) as lab:
            yield {"server": lab.server, "ca": lab.ca, "token": lab.token}


@contextmanager
def installation(options: argparse.Namespace) -> Iterator[tuple[Stack, Submitter, Submitter]]:
    """Everything started and ready; the submitters of both projects."""
    with ExitStack() as exits:
        folder = Path(
            exits.enter_context(tempfile.TemporaryDirectory(prefix="rung-storm-", ignore_cleanup_errors=True))
        )
        wishes = exits.enter_context(cluster(options))
        stack = Stack(folder, workers=1, concurrency=4, beats=1, observers=1, web=2)
        exits.enter_context(stack)
        manage(stack.env, "collectstatic", "--noinput", "--verbosity", "0")
        made = stack.found(projects=[STORM, OTHER], gpus=64, password=PASSWORD, **wishes)
        stack.start()
        token = stack.token(made)
        storm, other = (Submitter(stack, token, made["projects"][name], name, options.gpus) for name in (STORM, OTHER))
        other.send_all(5, 1)  # the first ones wait for the namespace
        until_handed_over(stack, options)
        yield stack, storm, other


def until_handed_over(stack: Stack, options: argparse.Namespace) -> None:
    """Wait until a worker has brought every workload to the cluster, or was refused."""
    eventually(lambda: not stack.rows(WAITING)[0][0], seconds=options.patience)


def measure(stack: Stack, storm: Submitter, other: Submitter, options: argparse.Namespace) -> dict[str, Any]:
    """The other project alone, then beside the storm until everything is handed over."""
    quiet = time.time()
    other.send_all(options.quiet, 1)
    until_handed_over(stack, options)
    with watching(stack) as watched, submitting(other):
        begun = time.time()
        blow(storm, options)
        answered = time.time()
        print(f"{options.submits} answered within {answered - begun:.0f} s", flush=True)
        until = answered + options.patience
        while time.time() < until and any(spent is None for _, spent in stack.rows(HANDED_OVER, STORM)):
            time.sleep(2)
        ended = time.time()
    with suppress(AssertionError):
        until_handed_over(stack, options)
    spent = {name: stack.rows(HANDED_OVER, name) for name in (STORM, OTHER)}
    return {
        "quiet": [each for at, each in spent[OTHER] if quiet <= at < begun],
        "during": [each for at, each in spent[OTHER] if begun <= at <= ended],
        "storm": [each for _, each in spent[STORM]],
        "rows": {name: len(rows) for name, rows in spent.items()},
        "failed": stack.rows("SELECT count(*) FROM workloads_workload WHERE phase = 'Failed'")[0][0],
        "answers": {each.name: dict(each.answers) for each in (storm, other)},
        "submit_seconds": storm.seconds,
        "readiness": [each for each in watched.readiness if begun <= each[0] <= ended],
        "pages": watched.pages,
        "waiting": watched.waiting,
        "longest_gap": watched.longest_gap(begun, ended),
        "answered_after": answered - begun,
        "handed_over_after": ended - begun,
        "ended_by_themselves": stack.ended_by_themselves(),
    }


@contextmanager
def submitting(other: Submitter) -> Iterator[None]:
    """One submit a second for as long as the block lasts."""
    stop = threading.Event()

    def submit() -> None:
        while not stop.wait(1.0):
            other.send_all(1, 1)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def blow(storm: Submitter, options: argparse.Namespace) -> None:
    """The storm: every client its share, at its share of the rate."""
    shares = [len(range(number, options.submits, options.clients)) for number in range(options.clients)]
    rate = options.rate / options.clients
    threads = [threading.Thread(target=storm.send_all, args=(share, rate)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def line(what: str, figures: str, *, good: bool) -> None:
    """One finding with its verdict."""
    print(f"{what:<58} {figures:<44} {'ok' if good else 'UNDER'}")


def report(found: dict[str, Any]) -> None:
    """One line for each limit. What was never handed over counts as endless."""
    for name in (STORM, OTHER):
        answers, rows = found["answers"][name], found["rows"][name]
        line(f"{name}: rows = answers", f"{rows} rows, answers {answers}", good=answers == {"202": rows})
    quiet, during = ([float("inf") if each is None else each for each in found[name]] for name in ("quiet", "during"))
    for name, of in (("p50", statistics.median), ("p95", stage.p95)):
        ratio = of(during) / of(quiet)
        figures = f"{of(during):.2f} s / {of(quiet):.2f} s = {ratio:.1f} (limit {MOST_RATIO:.0f})"
        line(f"the other's hand-over during / before, {name}", figures, good=ratio <= MOST_RATIO)
    good = sum(status == 200 for _, status, _ in found["readiness"])
    line("/readyz answered 200", f"{good} of {len(found['readiness'])} requests", good=good == len(found["readiness"]))
    slow = stage.p95(found["pages"])
    line("p95 of the list of workloads", f"{slow * 1e3:.0f} ms (limit {MOST_PAGE * 1e3:.0f})", good=slow <= MOST_PAGE)
    gap = found["longest_gap"]
    line(
        "longest pause between runs that enforce time limits",
        f"{gap:.0f} s (limit {MOST_GAP:.0f})",
        good=gap <= MOST_GAP,
    )
    line("workloads in Failed", str(found["failed"]), good=not found["failed"])
    line("processes that ended by themselves", str(found["ended_by_themselves"]), good=not found["ended_by_themselves"])
    per_second = found["rows"][STORM] / found["answered_after"]
    print(f"storm: {per_second:.0f} submits/s, p95 {stage.p95(found['submit_seconds']) * 1e3:.0f} ms;", end=" ")
    print(f"handed over {found['handed_over_after']:.0f} s after its begin")


def main() -> None:
    """Measure and keep the samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submits", type=int, default=10_000, help="of the storm")
    parser.add_argument("--clients", type=int, default=8, help="threads with one connection each")
    parser.add_argument(
        "--rate", type=float, default=0, help="submits a second of all clients; 0: as fast as answers come"
    )
    parser.add_argument("--quiet", type=int, default=60, help="submits of the other project before the storm")
    parser.add_argument("--gpus", type=int, default=1, help="of each workload; each project deserves 64")
    parser.add_argument("--sandbox", action="store_true", help="on the simulated cluster instead of a real API server")
    parser.add_argument("--patience", type=float, default=1800, help="seconds to wait until all is handed over")
    parser.add_argument("--keep", default="storm", help="name of the file for the samples")
    options = parser.parse_args()
    where = "the sandbox" if options.sandbox else "a real API server"
    print(f"{os.cpu_count()} cores, {options.submits} submits of {options.clients} clients on {where}", flush=True)
    with installation(options) as (stack, storm, other):
        found = measure(stack, storm, other, options)
    report(found)
    stage.keep(options.keep, {"options": vars(options), **found})


if __name__ == "__main__":
    main()
