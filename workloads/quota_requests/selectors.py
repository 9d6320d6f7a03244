"""Which quota requests an actor may see and decide, what one would change, and whether it is on the cluster.

The impact is computed by the service that would write the quota, in a savepoint that is rolled back.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import NodePool
from clusters.ports.flavour import RECLAIM
from clusters.sync.models import SyncRun
from clusters.watch.selectors import free_by_pool
from portal.kit.api.parsers import rfc3339
from portal.kit.errors import NotFound, Problem, RungError
from portal.kit.security.actors import SYSTEM, Actor
from portal.kit.security.planned_changes import planned_change
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, require, visible_projects
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.rules import QuotaValues
from tenants.quotas.selectors.reclaims import reclaim_changes, reclaimable_gpus
from tenants.quotas.services.quotas import (
    deserved_by_projects,
    deserved_sum,
    physical_gpus,
    planned_quota,
    set_project_quota,
)
from workloads.forecast.services.start_estimates import StartTrial
from workloads.plans.selectors import Change, Facts
from workloads.plans.services import quota_plans
from workloads.quota_requests.models import QuotaRequest, QuotaRequestState

SYNCED: Final = "synced"
PENDING: Final = "pending"
NOT_CHANGED: Final = "unchanged"
DECISION: Final = Permission.MANAGE_PROJECT_QUOTA


def visible_requests(actor: Actor) -> QuerySet[QuotaRequest]:
    """Of the projects that the actor may see."""
    rows = QuotaRequest.objects.filter(project__in=visible_projects(actor))
    return rows.select_related("project__department", "project__cluster", "node_pool__cluster")


def own_requests(actor: Actor) -> QuerySet[QuotaRequest]:
    return visible_requests(actor).filter(author_kind=str(actor.kind), author_id=actor.id)


def requests_to_decide(actor: Actor) -> QuerySet[QuotaRequest]:
    """Open ones of the projects whose quota the actor may set, the oldest first."""
    projects = access_for(actor).projects(DECISION)
    return visible_requests(actor).filter(state=QuotaRequestState.OPEN, project__in=projects).order_by("created_at")


def request_or_404(actor: Actor, key: UUID) -> QuotaRequest:
    row = visible_requests(actor).filter(pk=key).first()
    if row is None:
        raise NotFound
    return row


def decidable_request(actor: Actor, key: UUID) -> QuotaRequest:
    """The request, where the actor may set the quota it is about; NotFound or Forbidden."""
    row = request_or_404(actor, key)
    require(actor, DECISION, project=row.project)
    return row


def may_decide(actor: Actor, project: Project) -> bool:
    return access_for(actor).can(DECISION, project=project)


def base_of(project: Project, node_pool: NodePool) -> str:
    """A digest of the quotas and GPUs that an impact is computed on."""
    own = ProjectQuota.objects.filter(project=project, node_pool=node_pool).first()
    parent = DepartmentQuota.objects.filter(department=project.department_id, node_pool=node_pool).first()
    facts = (
        QuotaValues.of(own).as_fields() if own else None,
        QuotaValues.of(parent).as_fields() if parent else None,
        type(project.department).objects.values_list("enforce_deserved", flat=True).get(pk=project.department_id),
        deserved_by_projects(project.department, node_pool).gpu,
        deserved_sum(ProjectQuota.objects.filter(node_pool=node_pool)).gpu,
        physical_gpus(node_pool),
    )
    return blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def sync_state(row: QuotaRequest) -> str:
    """Has a sync run that is newer than the last change of the quota put it on the cluster?"""
    if not row.generation:
        return NOT_CHANGED
    cluster = row.project.cluster
    if cluster.synced_generation >= row.generation:
        return SYNCED
    runs = SyncRun.objects.filter(
        cluster=cluster, dry_run=False, finished_at__isnull=False, error_code="", generation__gte=row.generation
    )
    owner = row.project.owner
    about = [run for run in runs[:20] if not run.scope or owner in run.scope.splitlines()]
    return SYNCED if any(not run.outcomes.filter(owner=owner, ok=False).exists() for run in about) else PENDING


def values_of(project: Project, node_pool: NodePool) -> QuotaValues:
    """The quota now, or what holds where none was set."""
    row = ProjectQuota.objects.filter(project=project, node_pool=node_pool).first()
    return QuotaValues.of(row) if row else QuotaValues()


def raised(values: QuotaValues, milli: int) -> QuotaValues:
    """So many GPUs more deserved; a limit moves along, so that as much can be borrowed as before."""
    limit = None if values.limit.gpu is None else values.limit.gpu + milli
    deserved = replace(values.deserved, gpu=(values.deserved.gpu or 0) + milli)
    return replace(values, deserved=deserved, limit=replace(values.limit, gpu=limit))


def lowered(values: QuotaValues, milli: int) -> QuotaValues:
    """The way back, as far as others have not lowered it meanwhile."""
    deserved = max((values.deserved.gpu or 0) - milli, 0)
    limit = None if values.limit.gpu is None else max(values.limit.gpu - milli, deserved)
    return replace(values, deserved=replace(values.deserved, gpu=deserved), limit=replace(values.limit, gpu=limit))


def decision_change(row: QuotaRequest, *, gpus: float | None, until: date | None, reason: str = "") -> dict[str, Any]:
    """An approval as a change to plan."""
    return {"request": str(row.pk), "gpus": gpus, "until": until.isoformat() if until else None, "reason": reason}


def request_of(change: Change) -> QuotaRequest:
    """The request that a planned decision is about; NotFound where it is absent."""
    rows = QuotaRequest.objects.select_related("project__department", "project__cluster", "node_pool__cluster")
    if (row := rows.filter(pk=change["request"]).first()) is None:
        raise NotFound
    return row


def ends_grant(change: Change) -> bool:
    """Does the decision take back what was granted?"""
    return change.get("op") == "end"


def planned_grant(change: Change) -> Change:
    """The quota that a planned decision sets, as a change of quotas."""
    row, gpus = request_of(change), change.get("gpus")
    now = values_of(row.project, row.node_pool)
    more = row.gpu_milli if gpus is None else round(gpus * 1000)
    values = lowered(now, row.granted_milli or 0) if ends_grant(change) else raised(now, more)
    return planned_quota(row.project, row.node_pool, values, change.get("reason", ""))[1]


def plan_title(change: Change) -> str:
    row = request_of(change)
    return f"{'End' if ends_grant(change) else 'Approve'} quota request of {row.author_name} for {row}"


def plan_facts(change: Change) -> Facts:
    """The state of the request, and the quotas that it rests on."""
    row = request_of(change)
    return {f"quota request of {row.author_name} for {row}": row.state, **quota_plans.facts(planned_grant(change))}


def public_impact(impact: Mapping[str, Any]) -> dict[str, Any]:
    """Without the ids of other projects."""
    return {**impact, "reclaim": {name: impact["reclaim"][name] for name in ("enforced", "free")}}


def impact_of(project: Project, node_pool: NodePool, milli: int) -> dict[str, Any]:
    """What so many GPUs more would change, as JSON; amounts in GPUs. Nothing of it stays.

    `refusals`: why the quota could not be set so, as where its department enforces its own.
    """
    before = values_of(project, node_pool)
    after = raised(before, milli)
    starts = StartTrial({node_pool: [project.pk]})
    facts = _sums(project, node_pool, milli)
    reclaims_then = reclaims_now = reclaimable_gpus([node_pool])
    warnings: Sequence[Problem] = ()
    refusals: Sequence[Problem] = ()
    with transaction.atomic(), planned_change():
        try:
            found = set_project_quota(project=project, node_pool=node_pool, values=after, actor=SYSTEM)
        except RungError as error:
            refusals = error.problems or (Problem("", error.code, error.message),)
        else:
            warnings = found.warnings
            reclaims_then = reclaimable_gpus([node_pool])
        starts.under_planned()
        transaction.set_rollback(True)
    cluster = node_pool.cluster
    return {
        "deserved": {"before": _gpus(before.deserved.gpu), "after": _gpus(after.deserved.gpu)},
        "limit": {"before": _gpus(before.limit.gpu), "after": _gpus(after.limit.gpu)},
        **facts,
        "warnings": [{"code": each.code, "message": str(each.message)} for each in warnings],
        "refusals": [{"code": each.code, "message": str(each.message)} for each in refusals],
        "reclaim": {
            "enforced": guarantee_on(cluster, RECLAIM).enforced,
            "free": _free_gpus(node_pool),
            **reclaim_changes(reclaims_now, reclaims_then),
        },
        "starts": starts.compared(),
        "scheduler": str(flavour_for(cluster.flavour).title),
        "simulated": cluster.is_simulated,
        "observedAt": rfc3339(cluster.observed_at),
    }


def _gpus(milli: int | None) -> float | None:
    """Whole numbers without a fraction."""
    return None if milli is None else milli // 1000 if milli % 1000 == 0 else milli / 1000


def _sums(project: Project, node_pool: NodePool, milli: int) -> dict[str, Any]:
    """All that is deserved in the department and in the pool, against what they have."""
    parent = DepartmentQuota.objects.filter(department=project.department_id, node_pool=node_pool).first()
    inside = deserved_by_projects(project.department, node_pool).gpu
    everywhere = deserved_sum(ProjectQuota.objects.filter(node_pool=node_pool)).gpu
    return {
        "department": {
            "name": project.department.name,
            "deserved": _gpus(parent.gpu_deserved if parent else 0),
            "before": _gpus(inside),
            "after": _gpus(inside + milli),
        },
        "pool": {
            "name": node_pool.name,
            "gpus": _gpus(physical_gpus(node_pool)),
            "before": _gpus(everywhere),
            "after": _gpus(everywhere + milli),
        },
    }


def _free_gpus(node_pool: NodePool) -> float | None:
    """None while no node of the pool was observed."""
    capacity = free_by_pool([node_pool]).get(node_pool.pk)
    return _gpus(capacity.free) if capacity else None
