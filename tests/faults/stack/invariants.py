"""What must hold after a schedule of faults, read from outside: database, API server, proxy log, process ids.

Every check adds sentences about what is wrong; a run shows all of them.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import generation_of, is_managed, owner_of
from tests.faults.stack.clients import Account, Client, Sent
from tests.support.faultproxy import FaultProxy
from tests.support.faults import Exchange
from tests.support.lab import LabCluster
from tests.support.stack import Stack

JOB = Kind("batch", "v1", "Job", "jobs", namespaced=True)
RECOVERY = 120.0
"""Two resync periods after the last fault."""
MANAGED = "app.kubernetes.io/managed-by=rung"
ROWS = """
SELECT w.id::text, w.name, w.phase, lower(w.desired_phase), w.deleted_at IS NOT NULL, w.due_at IS NOT NULL,
  w.generation, w.applied_generation, w.apply_error, w.phase_reason, w.phase_message
FROM workloads_workload w WHERE w.name LIKE %s
"""
DONE = {"running": {"Running", "Completed"}, "stopped": {"Stopped"}}
ENDED = {"Completed", "Failed", "Stopped"}


@dataclass(frozen=True, slots=True)
class Row:
    """A workload as the database holds it."""

    id: str
    name: str
    phase: str
    desired: str
    deleted: bool
    due: bool
    generation: int
    applied: int
    error: str
    reason: str
    message: str

    @property
    def carried_out(self) -> bool:
        """The cluster has what is wanted, and it shows."""
        if self.desired == "deleted":
            return self.deleted
        return self.phase == "Failed" or (
            not self.due and self.applied == self.generation and self.phase in DONE[self.desired]
        )


@dataclass
class Aftermath:
    """The state after a schedule: where to read it, what clients were promised, and the sentences that do not hold."""

    stack: Stack
    proxy: FaultProxy
    cluster: LabCluster
    account: Account
    clients: Sequence[Client]
    prefix: str
    first: int = 0
    """Where the proxy's log was when the schedule began."""
    wrong: list[str] = field(default_factory=list)

    @property
    def sent(self) -> list[Sent]:
        """Every promise."""
        return [each for client in self.clients for each in client.sent]

    @property
    def wanted(self) -> dict[str, str]:
        """The last state that a client requested of each workload."""
        return {key: state for client in self.clients for key, state in client.wanted.items()}

    @property
    def log(self) -> list[Exchange]:
        """Requests to the API server since the schedule began."""
        return list(self.proxy.log)[self.first :]

    def rows(self) -> dict[str, Row]:
        """Every workload of this run."""
        return {row[0]: Row(*row) for row in self.stack.rows(ROWS, f"{self.prefix}%")}

    def jobs(self) -> dict[str, list[Manifest]]:
        """Live objects by the workload that owns them."""
        found: dict[str, list[Manifest]] = defaultdict(list)
        for each in self.cluster.admin.list(JOB, labels=MANAGED):
            if "deletionTimestamp" not in each["metadata"] and each["metadata"]["name"].startswith(self.prefix):
                found[owner_of(each).removeprefix("workload.")].append(each)
        return found

    def check(self, holds: object, sentence: str) -> None:
        """Note the sentence where it does not hold."""
        if not holds:
            self.wrong.append(sentence)


def settle(after: Aftermath, *, since: float) -> None:
    """Wait until everything is carried out and the portal is ready, within two resync periods of the last fault."""
    left = since + RECOVERY - time.monotonic()
    after.check(_soon(lambda: is_settled(after), seconds=left), f"I8, I9, I10: not settled within {RECOVERY:.0f} s")


def is_settled(after: Aftermath) -> bool:
    """Every row is carried out, and `/readyz` says ready without a reservation."""
    if any(not row.carried_out for row in after.rows().values()):
        return False
    status, body, _ = after.stack.readiness()
    return status == 200 and body.get("status") == "ready"


def check_all(after: Aftermath, *, resyncs: int) -> None:
    """Raise AssertionError with every sentence that does not hold, and with what helps to find out why."""
    rows, jobs = after.rows(), after.jobs()
    for check in (clients_were_answered, every_promise_is_kept, nothing_else_is_there, nothing_is_called_failed):
        check(after, rows, jobs)
    after.wrong.extend(fence_breaches(after.log))
    keys_answer_the_same(after)
    nothing_is_written_any_more(after, resyncs)
    after.check(not (ended := after.stack.ended_by_themselves()), f"I10: processes ended by themselves: {ended}")
    status, body, _ = after.stack.readiness()
    after.check(status == 200, f"I10: /readyz answers {status} {body}")
    assert not after.wrong, "\n".join([*after.wrong, "", *_circumstances(after)])


def clients_were_answered(after: Aftermath, _rows: dict[str, Row], _jobs: dict[str, list[Manifest]]) -> None:
    """No valid request was refused, and none was left without an answer."""
    for client in after.clients:
        for surprise in client.surprises:
            after.check(False, f"a client's valid request: {surprise}")


def every_promise_is_kept(after: Aftermath, rows: dict[str, Row], jobs: dict[str, list[Manifest]]) -> None:
    """I1: one row of each submit answered 2xx, and one live object or a recorded end."""
    ids = [each.workload_id for each in after.sent]
    after.check(len(set(ids)) == len(ids), "I1: two submits were answered with one workload")
    for each in after.sent:
        row = rows.get(each.workload_id)
        if row is None:
            after.check(False, f"I1: {each.key} was answered and has no row")
            continue
        wanted, number = after.wanted[each.workload_id], len(jobs.get(row.id, []))
        after.check(row.desired == wanted, f"I1: {row} is not wanted {wanted}, as was answered")
        expected = 0 if wanted == "deleted" else 1
        after.check(number == expected or row.phase in ENDED, f"I1: {row} has {number} objects")
        after.check(row.carried_out, f"I9: {row} is stuck")


def nothing_else_is_there(after: Aftermath, rows: dict[str, Row], jobs: dict[str, list[Manifest]]) -> None:
    """I2, I3: no row without a promise, no object without a row, no running row without an object."""
    promised = {each.workload_id for each in after.sent}
    for row in rows.values():
        after.check(row.id in promised, f"I2: {row} was not promised to any client")
        after.check(row.phase != "Running" or row.deleted or jobs.get(row.id), f"I3: {row} runs without an object")
    for owner, found in jobs.items():
        live = owner in rows and not rows[owner].deleted
        after.check(live, f"I3: {[each['metadata']['name'] for each in found]} has no row")
        after.check(len(found) == 1, f"I1: {owner} has {len(found)} objects")


def nothing_is_called_failed(after: Aftermath, rows: dict[str, Row], _jobs: dict[str, list[Manifest]]) -> None:
    """No workload of this load can fail by itself."""
    for row in rows.values():
        after.check(row.phase != "Failed", f"false Failed: {row}")


def fence_breaches(log: Sequence[Exchange]) -> Iterator[str]:
    """I4: one effective create between two deletions, and never a lower generation after a higher one."""
    highest: dict[str, int] = defaultdict(int)
    created: Counter[str] = Counter()
    for name, exchange, manifest in _effective(log):
        if exchange.method == "DELETE":
            highest.pop(name, None)
            created.pop(name, None)
            continue
        if (generation := generation_of(manifest)) < highest[name]:
            yield f"I4: {name} fell from generation {highest[name]} to {generation}"
        highest[name] = max(generation, highest[name])
        created[name] += exchange.upstream == HTTPStatus.CREATED
        if exchange.upstream == HTTPStatus.CREATED and created[name] > 1:
            yield f"I4: {name} was created {created[name]} times"


def keys_answer_the_same(after: Aftermath) -> None:
    """I2: a replay of each key answers with the same workload."""
    for each in after.sent:
        again = after.account.submit(each.key, each.project_id, each.manifest)
        same = again.status == 202 and json.loads(again.text)["metadata"]["id"] == each.workload_id
        after.check(same, f"I2: a replay of {each.key} answered {again.status} {again.text[:200]}")


def nothing_is_written_any_more(after: Aftermath, resyncs: int) -> None:
    """I8: further full resyncs write nothing. The next one is made due at once, and the sweep carries it out."""
    before = len(after.proxy.writes())
    done = "SELECT count(*) FROM clusters_syncrun WHERE state = 'succeeded' AND scope = '' AND NOT dry_run"
    for _ in range(resyncs):
        counted = after.stack.rows(done)[0][0]
        after.stack.rows("UPDATE clusters_cluster SET sync_due_at = now(), resync_due_at = now()")
        succeeded = _soon(lambda c=counted: after.stack.rows(done)[0][0] > c, seconds=60)
        after.check(succeeded, "I8: a further full resync did not succeed within 60 s")
    written = [f"{each.method} {each.path} {each.upstream}" for each in after.proxy.writes()[before:]]
    after.check(not written, f"I8: {len(written)} writes after everything was settled: {written[:5]}")


def _effective(log: Sequence[Exchange]) -> Iterator[tuple[str, Exchange, dict[str, Any]]]:
    """Writes to Jobs that the API server carried out, by name and in their order."""
    done = (each for each in log if each.is_write and 200 <= each.upstream < 300 and "/jobs" in each.path)
    for each in sorted(done, key=lambda each: each.ended):
        namespace, _, name = each.path.partition("/namespaces/")[2].partition("/jobs")
        if each.method == "DELETE":
            yield f"{namespace}/{name.strip('/')}", each, {}
            continue
        with suppress(ValueError):
            manifest = each.manifest
            if isinstance(manifest, dict) and is_managed(manifest):
                yield f"{namespace}/{manifest['metadata']['name']}", each, manifest


def _soon(condition: Callable[[], object], *, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(Exception):  # a part that is still away is what is being waited for
            if condition():
                return True
        time.sleep(0.5)
    return False


def _circumstances(after: Aftermath) -> Iterator[str]:
    """What helps to find the cause."""
    phases = Counter((row.phase, row.desired, row.deleted) for row in after.rows().values())
    yield f"{len(after.sent)} promised; rows by phase, wish, deleted: {dict(phases)}"
    yield f"errors: {Counter(row.error for row in after.rows().values() if row.error).most_common(5)}"
    yield f"cluster: {after.stack.rows('SELECT state, paused_reason, failures FROM clusters_cluster')}"
    runs = "SELECT state, trigger, error_code, error FROM clusters_syncrun ORDER BY id DESC LIMIT 5"
    yield f"last runs: {after.stack.rows(runs)}"
    yield f"readiness: {after.stack.readiness()}"
    yield f"logs: {after.stack.folder}"
