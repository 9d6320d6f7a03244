"""The lock on a workload's row: what people ask for is decided on the row as it is, so no other move refuses it."""

from collections.abc import Iterator
from contextlib import contextmanager

from portal.core.attempts import attempt
from portal.core.errors import Absent
from workloads.models import Workload


def lock(workload: Workload) -> None:
    """Lock the row until the transaction ends, and bring the instance to what the row holds. The audit chain
    is locked after it.

    No related rows are joined: PostgreSQL drops a row from the answer when a column it was joined by changed while the
    lock was waited for. On SQLite the transaction itself is the lock.
    """
    fresh = Workload.objects.select_for_update(no_key=True).filter(pk=workload.pk).first()
    if fresh is None:
        raise Absent
    for field in Workload._meta.concrete_fields:
        setattr(workload, field.attname, getattr(fresh, field.attname))


@contextmanager
def locked(workload: Workload) -> Iterator[None]:
    """One transaction around reading the row, deciding what to change and the service that changes it.

    A refusal inside it still leaves its audit record.
    """
    with attempt():
        lock(workload)
        yield
