"""Create, update and delete departments and projects. A project is a namespace; its name never changes."""

from collections.abc import Callable, Sequence
from typing import Final

from django.db import transaction
from django.db.models import ProtectedError, Q
from django.utils.translation import gettext as _

from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from portal.audit.services import record
from portal.kit.db.validation import (
    MAX_REASON_LENGTH,
    unique_or_conflict,
    validate_instance,
    validate_text,
)
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services.subjects import set_change_author
from tenants.organisation.models import Department, Project
from tenants.usage.selectors import live_workloads

DeletionHook = Callable[[Department | Project, Actor], None]
_deletion_hooks: Final[list[DeletionHook]] = []


def register_deletion_hook(farewell: DeletionHook) -> None:
    """Call this, in its transaction, before a project or department is deleted."""
    if farewell not in _deletion_hooks:
        _deletion_hooks.append(farewell)


def run_deletion_hooks(owner: Department | Project, actor: Actor) -> None:
    """Let everybody take away, and record, what belongs to the owner."""
    for farewell in _deletion_hooks:
        farewell(owner, actor)


RESERVED_NAMES: Final = frozenset(
    {"default", "runai", "runai-backend", "runai-reservation", "runai-scale-adjust", "kai-scheduler", "gpu-operator"}
)
RESERVED_PREFIXES: Final = ("kube-", "openshift-", "cattle-", "istio-")


@transaction.atomic
def create_department(
    *, cluster: Cluster, name: str, actor: Actor, description: str = "", enforce_deserved: bool = False
) -> Department:
    """A new department without quota. Conflict when the cluster has one of that name."""
    require(actor, Permission.MANAGE_ORGANISATION)
    department = Department(
        cluster=cluster,
        name=name,
        description=validate_text("/description", description),
        enforce_deserved=enforce_deserved,
        created_by=actor.name,
    )
    validate_instance(department)
    with unique_or_conflict("/name"):
        set_change_author(department, actor=actor).save()
    mark_dirty(cluster)
    record(actor, "department.create", department, detail={"enforce_deserved": enforce_deserved})
    return department


@transaction.atomic
def update_department(*, department: Department, actor: Actor, description: str, reason: str = "") -> Department:
    """Change its description. `set_deserved_enforcement` makes its projects keep within its deserved quota."""
    require(actor, Permission.MANAGE_DEPARTMENT, department=department)
    row = Department.objects.select_for_update().get(pk=department.pk)
    before = {"description": row.description}
    row.description = validate_text("/description", description)
    after = {"description": row.description}
    if after != before:
        why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
        set_change_author(row, actor=actor, reason=why).save(update_fields=[*after, "updated_at"])
        record(actor, "department.update", row, detail={"before": before, "after": after, "reason": why})
    return row


@transaction.atomic
def delete_department(*, department: Department, actor: Actor, reason: str = "") -> None:
    """Remove an empty department. Conflict, with their number, while it has projects.

    Conflict too while it has quota that only an approved plan may take away.
    """
    require(actor, Permission.MANAGE_ORGANISATION)
    row = Department.objects.select_for_update().get(pk=department.pk)
    if count := row.projects.count():
        text = _("%(name)s still has %(count)s projects.") % {"name": row.name, "count": count}
        raise Conflict.at("", "department_in_use", text, projects=count)
    _check_quota_removal(row, row.pk)
    mark_dirty(row.cluster)
    run_deletion_hooks(row, actor)
    record(actor, "department.delete", row, detail={"reason": reason})
    set_change_author(row, actor=actor, reason=reason).delete()


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
    require(actor, Permission.MANAGE_PROJECT, department=department)
    project = Project(
        department=department,
        cluster=department.cluster,
        name=name,
        namespace=namespace or f"runai-{name}",
        description=validate_text("/description", description),
        default_node_pools=_known_pools(department.cluster, default_node_pools),
        created_by=actor.name,
    )
    validate_instance(project)
    _check_not_reserved(project.namespace)
    with unique_or_conflict("/name"):
        set_change_author(project, actor=actor).save()
    mark_dirty(project.cluster, owner=project.owner)
    detail = {"department": department.name, "namespace": project.namespace}
    record(actor, "project.create", project, detail=detail, project_id=str(project.pk))
    return project


@transaction.atomic
def update_project(
    *, project: Project, actor: Actor, description: str, default_node_pools: Sequence[str], reason: str = ""
) -> Project:
    """Change its description or its default node pools. Name, department and namespace are fixed."""
    require(actor, Permission.MANAGE_PROJECT, project=project)
    row = Project.objects.select_for_update().get(pk=project.pk)
    before = {"description": row.description, "default_node_pools": row.default_node_pools}
    row.description = validate_text("/description", description)
    row.default_node_pools = _known_pools(row.cluster, default_node_pools)
    after = {"description": row.description, "default_node_pools": row.default_node_pools}
    if after != before:
        why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
        set_change_author(row, actor=actor, reason=why).save(update_fields=[*after, "updated_at"])
        detail = {"before": before, "after": after, "reason": why}
        record(actor, "project.update", row, detail=detail, project_id=str(row.pk))
    return row


@transaction.atomic
def delete_project(*, project: Project, actor: Actor, reason: str = "") -> None:
    """Remove a project and its namespace. Conflict, with their number, while workloads of it live or are remembered.

    Conflict too while it has quota that only an approved plan may take away.
    """
    require(actor, Permission.MANAGE_PROJECT, project=project)
    row = Project.objects.select_for_update().get(pk=project.pk)
    if count := live_workloads([row.pk]):
        text = _("%(name)s still has %(count)s workloads that are not finished.") % {"name": row.name, "count": count}
        raise Conflict.at("", "project_in_use", text, workloads=count)
    _check_quota_removal(row, row.department_id)
    mark_dirty(row.cluster)
    run_deletion_hooks(row, actor)
    record(actor, "project.delete", row, detail={"reason": reason, "namespace": row.namespace}, project_id=str(row.pk))
    try:
        set_change_author(row, actor=actor, reason=reason).delete()
    except ProtectedError as error:
        count = len(error.protected_objects)
        text = _("%(name)s has the history of %(count)s workloads.") % {"name": row.name, "count": count}
        raise Conflict.at("", "project_has_history", text, workloads=count) from None


def _check_quota_removal(owner: Department | Project, department_id: int) -> None:
    """Conflict while the owner deserves something, where a second admin has to approve changes of quotas."""
    deserves = Q(gpu_deserved__gt=0) | Q(cpu_deserved__gt=0) | Q(memory_deserved__gt=0)
    if owner.quotas.filter(deserves).exists():
        try:
            check_direct_change(department_id)
        except Conflict as refusal:
            text = _("%(name)s has quota. A second admin has to approve its removal: plan its quotas as 0 first.")
            raise Conflict(text % {"name": owner.name}, code=refusal.code) from None


def _check_not_reserved(namespace: str) -> None:
    if namespace in RESERVED_NAMES or namespace.startswith(RESERVED_PREFIXES):
        text = _("The namespace %(name)s is reserved.") % {"name": namespace}
        raise ValidationFailed.at("/namespace", "reserved_namespace", text)


def _known_pools(cluster: Cluster, names: Sequence[str]) -> list[str]:
    known = list(cluster.node_pools.values_list("name", flat=True))
    for place, name in enumerate(names):
        if name not in known:
            text = _("This cluster has no such node pool.")
            raise ValidationFailed.at(f"/defaultNodePools/{place}", "unknown_node_pool", text, allowed=known)
    return list(dict.fromkeys(names))
