"""Policies to Run:ai's JSON."""

from collections.abc import Iterable
from typing import Any

from portal.core.wire import TENANT_ID, stamp
from workloads.models import Policy
from workloads.policies import merged_of
from workloads.policy_documents import merged_json, place_json
from workloads.policy_rules import Kind, contradiction
from workloads.scopes import place_of_row
from workloads.selectors.policies import Holding


def holding_json(holding: Holding) -> dict[str, Any]:
    """`{meta, policy, effective, effectiveUpdatedAt}`; the first two are null where only wider scopes have policies."""
    own = holding.own
    effective = {**merged_json(holding.kind, holding.merged), "status": _status(contradiction(holding.merged))}
    return {
        "meta": meta_json(own) if own else None,
        "policy": {"defaults": {}, "rules": {}, **own.document} if own else None,
        "effective": effective,
        "effectiveUpdatedAt": stamp(holding.updated_at),
    }


def meta_json(row: Policy) -> dict[str, Any]:
    """PolicyMeta."""
    return {
        **place_json(place_of_row(row)),
        "id": str(row.pk),
        "name": row.name,
        "tenantId": TENANT_ID,
        "createdBy": row.created_by,
        "createdAt": stamp(row.created_at),
        "updatedBy": row.updated_by,
        "updatedAt": stamp(row.updated_at),
    }


def entry_json(row: Policy, reaching: Iterable[Policy]) -> dict[str, Any]:
    """PolicyListEntry; `reaching`: all that hold there. Rung itself holds people to it: no cluster has a part."""
    status = {"clusters": [], **_status(contradiction(merged_of(reaching)))}
    return {"type": str(Kind(row.kind)), "meta": meta_json(row), "status": status}


def _status(problem: str) -> dict[str, Any]:
    return {"validation": {"errorMessage": problem or None}}
