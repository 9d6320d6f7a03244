"""One transaction per verb, and one audit record where the answer is no."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from portal.audit.services import record_refusal
from portal.core.actors import Actor
from portal.core.errors import Absent, RungError


@contextmanager
def verb(*, actor: Actor, action: str, entity_type: str, entity_name: str, project_id: str = "") -> Iterator[None]:
    """Run the block in one transaction. A refusal rolls it back and leaves exactly one audit record, `Denied`.

    What the actor may not see is answered without a record: it would name a thing that is not theirs.
    """
    with (
        recorded(actor=actor, action=action, entity_type=entity_type, entity_name=entity_name, project_id=project_id),
        transaction.atomic(),
    ):
        yield


@contextmanager
def recorded(*, actor: Actor, action: str, entity_type: str, entity_name: str, project_id: str = "") -> Iterator[None]:
    """The same for a block that opens its transactions itself, because it also waits for others."""
    try:
        yield
    except Absent:
        raise
    except RungError as error:
        record_refusal(actor, action, error, entity_type=entity_type, entity_name=entity_name, project_id=project_id)
        raise
