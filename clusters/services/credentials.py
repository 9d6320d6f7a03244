"""Seal stored credentials anew under the newest key. Again changes nothing."""

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import transaction

from clusters.credentials import sealer
from clusters.sealing import SealBroken
from portal.audit.services import record
from portal.core.actors import Actor


@dataclass(frozen=True, slots=True)
class Rotation:
    """How many rows were sealed anew, were already, or do not open with any key."""

    renewed: int
    current: int
    broken: int


@transaction.atomic
def rotate_credentials(*, actor: Actor) -> Rotation:
    """Seal every credential under the first of `RUNG_CREDENTIAL_KEYS`. Raises NoKey without one.

    A row that is changed meanwhile was sealed under the newest key by that change.
    """
    keys = sealer()
    renewed = current = broken = 0
    for model in sealed_models():
        rows = model._default_manager.exclude(sealed="")
        current += rows.filter(key_id=keys.key_id).count()
        for row in rows.select_for_update().exclude(key_id=keys.key_id):
            try:
                sealed = keys.renewed(str(row.sealed))
            except SealBroken:
                broken += 1
                continue
            renewed += rows.filter(pk=row.pk).update(sealed=sealed, key_id=keys.key_id)
    if renewed:
        record(actor, "cluster.rotate_credentials", None, detail={"renewed": renewed, "broken": broken})
    return Rotation(renewed, current, broken)


def sealed_models() -> list[Any]:
    """Every model of any app that keeps a sealed secret: by its columns `sealed` and `key_id`."""
    named = ((model, {field.name for field in model._meta.get_fields()}) for model in apps.get_models())
    return [model for model, names in named if {"sealed", "key_id"} <= names]
