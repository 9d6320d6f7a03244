"""Departments and projects: made, described and removed. A project is a namespace; names are fixed once given."""

from collections.abc import Sequence
from typing import Final

from django.db import transaction
from django.db.models import F, ProtectedError
from django.utils.translation import gettext as _

from clusters.models import Cluster
from clusters.services.estate import touch
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from tenants.history import sign
from tenants.leaving import leave
from tenants.models import Department, Project
from tenants.permissions import Verb, require
from tenants.services.checks import checked, readable, refuse_if, unless_taken
from tenants.services.quota_sums import departments_overrun
from tenants.usage import live_workloads

RESERVED_NAMES: Final = frozenset(
    {"default", "runai", "runai-backend", "runai-reservation", "runai-scale-adjust", "kai-scheduler", "gpu-operator"}
)
RESERVED_PREFIXES: Final = ("kube-", "openshift-", "cattle-", "istio-")
LONGEST_REASON: Final = 500


@transaction.atomic
def create_department(
    *, cluster: Cluster, name: str, actor: Actor, description: str = "", enforce_deserved: bool = False
) -> Department:
    """A new department without quota. Conflict when the cluster has one of that name."""
    require(actor, Verb.MANAGE_ORGANISATION)
    department = Department(
        cluster=cluster,
        name=name,
        description=readable("/description", description),
        enforce_deserved=enforce_deserved,
        created_by=actor.name,
    )
    checked(department)
    with unless_taken("/name"):
        sign(department, actor=actor).save()
    touch(cluster)
    record(actor, "department.create", department, detail={"enforce_deserved": enforce_deserved})
    return department


@transaction.atomic
def update_department(
    *, department: Department, actor: Actor, description: str, enforce_deserved: bool, reason: str = ""
) -> Department:
    """Describe it anew, or make its projects keep within its deserved quota: Conflict where they do not now."""
    require(actor, Verb.MANAGE_DEPARTMENT, department=department)
    row = Department.objects.select_for_update().get(pk=department.pk)
    if enforce_deserved != row.enforce_deserved:
        require(actor, Verb.MANAGE_DEPARTMENT_QUOTA, department=row)
    if enforce_deserved and not row.enforce_deserved:
        refuse_if(departments_overrun(row), Conflict)
    before = {"description": row.description, "enforce_deserved": row.enforce_deserved}
    row.description, row.enforce_deserved = readable("/description", description), enforce_deserved
    after = {"description": row.description, "enforce_deserved": row.enforce_deserved}
    if after != before:
        why = readable("/reason", reason, longest=LONGEST_REASON)
        sign(row, actor=actor, reason=why).save(update_fields=[*after, "updated_at"])
        record(actor, "department.update", row, detail={"before": before, "after": after, "reason": why})
    return row


@transaction.atomic
def delete_department(*, department: Department, actor: Actor, reason: str = "") -> None:
    """Remove an empty department. Conflict, with their number, while it has projects."""
    require(actor, Verb.MANAGE_ORGANISATION)
    row = Department.objects.select_for_update().get(pk=department.pk)
    if count := row.projects.count():
        text = _("%(name)s still has %(count)s projects.") % {"name": row.name, "count": count}
        raise Conflict.at("", "department_in_use", text, projects=count)
    touch(row.cluster)
    leave(row, actor)
    record(actor, "department.delete", row, detail={"reason": reason})
    sign(row, actor=actor, reason=reason).delete()


@transaction.atomic
def create_project(
    *,
    department: Department,
    name: str,
    actor: Actor,
    namespace: str = "",
    description: str = "",
    default_node_pools: Sequence[str] = (),
) -> Project:
    """A new project in its namespace (`runai-<name>` unless given). Quotas start with nothing deserved and no limit."""
    require(actor, Verb.MANAGE_PROJECT, department=department)
    project = Project(
        department=department,
        cluster=department.cluster,
        name=name,
        namespace=namespace or f"runai-{name}",
        description=readable("/description", description),
        default_node_pools=_known_pools(department.cluster, default_node_pools),
        created_by=actor.name,
    )
    checked(project)
    _refuse_reserved(project.namespace)
    with unless_taken("/name"):
        sign(project, actor=actor).save()
    touch(project.cluster, owner=project.owner)
    detail = {"department": department.name, "namespace": project.namespace}
    record(actor, "project.create", project, detail=detail, project_id=str(project.pk))
    return project


@transaction.atomic
def update_project(
    *, project: Project, actor: Actor, description: str, default_node_pools: Sequence[str], reason: str = ""
) -> Project:
    """Describe it anew, or choose other default node pools. Name, department and namespace are fixed."""
    require(actor, Verb.MANAGE_PROJECT, project=project)
    row = Project.objects.select_for_update().get(pk=project.pk)
    before = {"description": row.description, "default_node_pools": row.default_node_pools}
    row.description = readable("/description", description)
    row.default_node_pools = _known_pools(row.cluster, default_node_pools)
    after = {"description": row.description, "default_node_pools": row.default_node_pools}
    if after != before:
        why = readable("/reason", reason, longest=LONGEST_REASON)
        sign(row, actor=actor, reason=why).save(update_fields=[*after, "updated_at"])
        detail = {"before": before, "after": after, "reason": why}
        record(actor, "project.update", row, detail=detail, project_id=str(row.pk))
    return row


@transaction.atomic
def delete_project(*, project: Project, actor: Actor, reason: str = "") -> None:
    """Remove a project and its namespace. Conflict, with their number, while workloads of it live or are remembered."""
    require(actor, Verb.MANAGE_PROJECT, project=project)
    row = Project.objects.select_for_update().get(pk=project.pk)
    if count := live_workloads([row.pk]):
        text = _("%(name)s still has %(count)s workloads that are not finished.") % {"name": row.name, "count": count}
        raise Conflict.at("", "project_in_use", text, workloads=count)
    touch(row.cluster)
    leave(row, actor)
    record(actor, "project.delete", row, detail={"reason": reason, "namespace": row.namespace}, project_id=str(row.pk))
    try:
        sign(row, actor=actor, reason=reason).delete()
    except ProtectedError as error:
        count = len(error.protected_objects)
        text = _("%(name)s keeps the history of %(count)s workloads.") % {"name": row.name, "count": count}
        raise Conflict.at("", "project_has_history", text, workloads=count) from None


def bump(owner: Department | Project) -> None:
    """Count one more change of what clusters should hold for this owner."""
    type(owner).objects.filter(pk=owner.pk).update(generation=F("generation") + 1)


def _refuse_reserved(namespace: str) -> None:
    if namespace in RESERVED_NAMES or namespace.startswith(RESERVED_PREFIXES):
        text = _("The namespace %(name)s belongs to the cluster.") % {"name": namespace}
        raise Refused.at("/namespace", "reserved_namespace", text)


def _known_pools(cluster: Cluster, names: Sequence[str]) -> list[str]:
    known = list(cluster.node_pools.values_list("name", flat=True))
    for place, name in enumerate(names):
        if name not in known:
            text = _("This cluster has no such node pool.")
            raise Refused.at(f"/defaultNodePools/{place}", "unknown_node_pool", text, allowed=known)
    return list(dict.fromkeys(names))
