"""Quotas of several node pools at once, as Run:ai's clients set them: all of them or none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from clusters.models import Cluster, NodePool
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota
from tenants.permissions import Verb, require
from tenants.quota_values import QuotaValues
from tenants.resources import misshapen, values_of
from tenants.services.checks import refuse_if
from tenants.services.quotas import reset_quota, set_department_quota, set_project_quota


@transaction.atomic
def set_resources(*, owner: Department | Project, entries: object, actor: Actor, whole: bool, reason: str = "") -> None:
    """Set the quota of every pool that is named. `whole`: others lose theirs; otherwise absent keys keep their value.

    Refused or Conflict as the single quota is, with the pointer of the entry.
    """
    _permit(owner, actor)
    refuse_if(misshapen(entries))
    named: Sequence[Mapping[str, Any]] = entries if isinstance(entries, list) else []
    rows = _rows(owner)
    seen: set[int] = set()
    for number, entry in enumerate(named):
        at = f"/resources/{number}"
        pool = _pool(owner.cluster, entry["nodePool"]["id"], f"{at}/nodePool/id", seen)
        row = rows.get(pool.pk)
        before = QuotaValues.of(row) if row is not None and not whole else None
        with _within(at):
            _set(owner, pool, values_of(entry, pointer="", before=before), actor=actor, reason=reason)
    if whole:
        for pool_id, row in rows.items():
            if pool_id not in seen:
                reset_quota(quota=row, actor=actor, reason=reason)


def _permit(owner: Department | Project, actor: Actor) -> None:
    """Also where nothing is named."""
    if isinstance(owner, Project):
        require(actor, Verb.MANAGE_PROJECT_QUOTA, project=owner)
    else:
        require(actor, Verb.MANAGE_DEPARTMENT_QUOTA, department=owner)


def _rows(owner: Department | Project) -> Mapping[int, ProjectQuota | DepartmentQuota]:
    if isinstance(owner, Project):
        return {row.node_pool_id: row for row in ProjectQuota.objects.filter(project=owner).select_related("node_pool")}
    rows = DepartmentQuota.objects.filter(department=owner).select_related("node_pool")
    return {row.node_pool_id: row for row in rows}


def _pool(cluster: Cluster, said: str, pointer: str, seen: set[int]) -> NodePool:
    pools = {str(pool.pk): pool for pool in cluster.node_pools.all()}
    found = pools.get(said)
    if found is None:
        text = _("%(cluster)s has no such node pool.") % {"cluster": cluster.name}
        raise Refused.at(pointer, "unknown_node_pool", text, allowed=tuple(pools))
    if found.pk in seen:
        raise Refused.at(pointer, "repeated", _("This node pool stands here twice."))
    seen.add(found.pk)
    return found


def _set(owner: Department | Project, pool: NodePool, values: QuotaValues, *, actor: Actor, reason: str) -> None:
    if isinstance(owner, Project):
        set_project_quota(project=owner, node_pool=pool, values=values, actor=actor, reason=reason)
    else:
        set_department_quota(department=owner, node_pool=pool, values=values, actor=actor, reason=reason)


@contextmanager
def _within(pointer: str) -> Iterator[None]:
    """What is refused inside points at its entry."""
    try:
        yield
    except (Refused, Conflict) as error:
        problems = [replace(each, pointer=pointer + each.pointer) for each in error.problems]
        raise type(error)(error.message, code=error.code, problems=problems) from None
