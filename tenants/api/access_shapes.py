"""Roles, permissions and access rules to Run:ai's JSON."""

from collections.abc import Iterable
from typing import Any, Final

from clusters.models import Cluster
from portal.core.wire import TENANT_ID, stamp
from tenants.access_rules import INSTALLATION
from tenants.models import AccessRole, Membership
from tenants.permissions import Grant
from tenants.roles import PREDEFINED, SETS, PermissionSet, Verbs, permissions_of

ROOT: Final = "rung"


def permissions_json(verbs: Verbs, everywhere: Verbs | None = None) -> list[dict[str, Any]]:
    """Resource types with the actions that these verbs allow, some of them in the whole installation only."""
    return [
        {"resourceType": each.type, "displayName": each.title, "groupId": each.group, "actions": actions}
        for each, actions in permissions_of(verbs, everywhere)
    ]


def plain_permissions(verbs: Verbs) -> list[dict[str, Any]]:
    """The same without titles."""
    return [{"resourceType": each.type, "actions": actions} for each, actions in permissions_of(verbs)]


def set_json(each: PermissionSet) -> dict[str, Any]:
    """A permission set with what it comes to."""
    said = {"id": each.id, "name": each.name, "description": each.description}
    return {**said, "permissions": plain_permissions(each.verbs)}


def role_v1(role: AccessRole) -> dict[str, Any]:
    """As Run:ai's client reads roles."""
    return {**_role(role), "permissions": permissions_json(role.verbs), "kubernetesPermissions": None}


def role_v2(role: AccessRole) -> dict[str, Any]:
    """As Run:ai's second version says it."""
    sets = PREDEFINED.get(role.key, tuple(role.permission_sets))
    chosen = [{"id": each, "name": SETS[each].name} for each in sets if each in SETS]
    return {**_role(role), "permissionSets": chosen, "permissions": plain_permissions(role.verbs)}


def _role(role: AccessRole) -> dict[str, Any]:
    return {
        "id": role.pk,
        "name": role.name,
        "description": role.description,
        "custom": role.custom,
        "enabled": role.enabled,
        "effectiveEnabled": role.enabled,
        "createdAt": stamp(role.created_at),
        "createdBy": role.created_by,
        "updatedAt": stamp(role.updated_at),
    }


def own_rule(rule: Membership) -> dict[str, Any]:
    """A rule about the caller."""
    cluster = _cluster_of(rule)
    return {
        "id": rule.pk,
        **_subject(rule),
        "roleId": rule.role.pk,
        "roleName": rule.role.name,
        **_scope(rule),
        "tenantId": TENANT_ID,
        **({"clusterId": str(cluster.pk)} if cluster else {}),
    }


def rule_json(rule: Membership) -> dict[str, Any]:
    """An access rule."""
    return {
        **own_rule(rule),
        "createdAt": stamp(rule.created_at),
        "createdBy": rule.created_by,
        "updatedAt": stamp(rule.updated_at),
        "status": {"phase": "Ready"},
    }


def superusers_rule(name: str, role: AccessRole) -> dict[str, Any]:
    """A superuser may do everything without a rule that says so."""
    return {
        "subjectId": name,
        "subjectType": "user",
        "roleId": role.pk,
        "roleName": role.name,
        "scopeId": str(TENANT_ID),
        "scopeType": "tenant",
        "scopeName": INSTALLATION,
        "tenantId": TENANT_ID,
    }


def path_of(rule: Membership) -> str:
    """The names from the installation down to the scope."""
    cluster, department = _cluster_of(rule), rule.department or (rule.project and rule.project.department)
    return "/".join([ROOT, *(each.name for each in (cluster, department, rule.project) if each)])


def _subject(rule: Membership) -> dict[str, str]:
    if rule.user is not None:
        return {"subjectId": rule.user.username, "subjectType": "user"}
    if rule.group is not None:
        return {"subjectId": rule.group.name, "subjectType": "group"}
    return {
        "subjectId": rule.service_account.client_id if rule.service_account else "",
        "subjectType": "service-account",
    }


def _scope(rule: Membership) -> dict[str, str]:
    for kind, place in (("project", rule.project), ("department", rule.department), ("cluster", rule.cluster)):
        if place is not None:
            return {"scopeId": str(place.pk), "scopeType": kind, "scopeName": place.name}
    return {"scopeId": str(TENANT_ID), "scopeType": "tenant", "scopeName": INSTALLATION}


def _cluster_of(rule: Membership) -> Cluster | None:
    inside = rule.project or rule.department
    return inside.cluster if inside is not None else rule.cluster


def scopes_json(grants: Iterable[Grant]) -> dict[str, Any]:
    """The places of grants: the smallest one that each names."""
    found: dict[str, list[str]] = {"projects": [], "departments": [], "clusters": []}
    everywhere = False
    for grant in grants:
        if grant.everywhere:
            everywhere = True
            continue
        kind, place = next((kind, place) for kind, place in zip(found, grant.place, strict=True) if place is not None)
        if str(place) not in found[kind]:
            found[kind].append(str(place))
    whole = {"tenant": str(TENANT_ID)} if everywhere else {}
    return {"system": everywhere, "tenants": [str(TENANT_ID)] if everywhere else [], **whole, **found}
