"""Policies to Run:ai's JSON."""

from typing import Any

from portal.core.wire import TENANT_ID, stamp
from workloads.models import Policy
from workloads.policies import merged_of, place_of_row, policies_reaching
from workloads.policy_documents import merged_json, place_json
from workloads.policy_rules import Kind, contradiction
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


def entry_json(row: Policy) -> dict[str, Any]:
    """PolicyListEntry. Rung itself holds people to it, so no cluster has anything to synchronise."""
    reaching = policies_reaching(row.project or row.department or row.cluster)
    merged = merged_of(each for each in reaching if each.kind == row.kind)
    status = {"clusters": [], **_status(contradiction(merged))}
    return {"type": str(Kind(row.kind)), "meta": meta_json(row), "status": status}


def _status(problem: str) -> dict[str, Any]:
    return {"validation": {"errorMessage": problem or None}}
