"""What can be allowed, and how Run:ai says it: the one table between permissions and pairs of resource type and action.

Verbs are what every policy question asks for; permissions are what clients of Run:ai read; permission sets bundle
permissions for roles. Only what Rung has is in the table. Pure: no rows, no requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final


class Permission(StrEnum):
    """What can be allowed."""

    VIEW_PROJECT = "view_project"
    SUBMIT = "submit"
    MANAGE_WORKLOAD = "manage_workload"  # one's own
    MANAGE_ANY_WORKLOAD = "manage_any_workload"
    VIEW_ACCESS = "view_access"
    MANAGE_MEMBERS = "manage_members"
    VIEW_AUDIT = "view_audit"
    VIEW_DEPARTMENT = "view_department"
    MANAGE_PROJECT = "manage_project"
    MANAGE_PROJECT_QUOTA = "manage_project_quota"
    MANAGE_DEPARTMENT = "manage_department"
    MANAGE_DEPARTMENT_QUOTA = "manage_department_quota"
    MANAGE_ORGANISATION = "manage_organisation"
    MANAGE_ACCESS = "manage_access"
    MANAGE_DICTIONARY = "manage_dictionary"
    MANAGE_CLUSTERS = "manage_clusters"


Permissions = frozenset[Permission]
ALL_PERMISSIONS: Final[Permissions] = frozenset(Permission)
READ_PERMISSIONS: Final[Permissions] = frozenset(
    {Permission.VIEW_PROJECT, Permission.VIEW_DEPARTMENT, Permission.VIEW_AUDIT, Permission.VIEW_ACCESS}
)
"""Verbs that change nothing: all that a read-only credential keeps."""
ACTIONS: Final = ("create", "read", "update", "delete")
_ANYBODY: Final[Permissions] = frozenset()


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A resource type of Run:ai that Rung has, with the permissions that each action needs; none: everyone may."""

    type: str
    title: str
    group: str
    needs: Mapping[str, Permissions]
    wide: bool = False
    """Of the whole installation: a role in a smaller place allows nothing of it."""


def _needing(
    *,
    create: Permissions | None = None,
    read: Permissions,
    update: Permissions | None = None,
    delete: Permissions | None = None,
) -> Mapping[str, Permissions]:
    requested = {"create": create, "read": read, "update": update, "delete": delete}
    return {action: permissions for action, permissions in requested.items() if permissions is not None}


def _written_with(permission: Permission, *, read: Permissions) -> Mapping[str, Permissions]:
    write = frozenset({permission})
    return _needing(create=write, read=read, update=write, delete=write)


_WORKLOADS: Final = _needing(
    create=frozenset({Permission.SUBMIT, Permission.MANAGE_WORKLOAD}),
    read=frozenset({Permission.VIEW_PROJECT}),
    update=frozenset({Permission.MANAGE_ANY_WORKLOAD}),
    delete=frozenset({Permission.MANAGE_ANY_WORKLOAD}),
)
"""Of workloads, templates and assets: creators may change and delete their own; these cover all users'."""
_ACCESS: Final = frozenset({Permission.MANAGE_ACCESS})
_MEMBERS: Final = frozenset({Permission.MANAGE_MEMBERS})
_SEEING: Final = frozenset({Permission.VIEW_ACCESS})
_PROJECTS: Final = frozenset({Permission.MANAGE_PROJECT, Permission.MANAGE_PROJECT_QUOTA})
_DEPARTMENTS: Final = frozenset({Permission.MANAGE_ORGANISATION, Permission.MANAGE_DEPARTMENT_QUOTA})

RESOURCES: Final = (
    ResourceType(
        "department",
        "Departments",
        "organization",
        _needing(
            create=_DEPARTMENTS,
            read=frozenset({Permission.VIEW_DEPARTMENT}),
            update=frozenset({Permission.MANAGE_DEPARTMENT}),
            delete=_DEPARTMENTS,
        ),
    ),
    ResourceType(
        "project",
        "Projects",
        "organization",
        _needing(create=_PROJECTS, read=frozenset({Permission.VIEW_PROJECT}), update=_PROJECTS, delete=_PROJECTS),
    ),
    ResourceType("events-history", "Event history", "organization", _needing(read=frozenset({Permission.VIEW_AUDIT}))),
    ResourceType("cluster", "Clusters", "physical-resource", _written_with(Permission.MANAGE_CLUSTERS, read=_ANYBODY)),
    ResourceType(
        "nodepools", "Node pools", "physical-resource", _written_with(Permission.MANAGE_CLUSTERS, read=_ANYBODY)
    ),
    ResourceType("nodes", "Nodes", "physical-resource", _needing(read=_ANYBODY)),
    ResourceType("users", "Users", "iam", _written_with(Permission.MANAGE_ACCESS, read=_SEEING), wide=True),
    ResourceType(
        "service-account", "Service accounts", "iam", _written_with(Permission.MANAGE_ACCESS, read=_SEEING), wide=True
    ),
    ResourceType("access-keys", "Access keys of others", "iam", _needing(read=_SEEING, delete=_ACCESS), wide=True),
    ResourceType("roles", "Roles", "iam", _written_with(Permission.MANAGE_ACCESS, read=_ANYBODY), wide=True),
    ResourceType("access_rules", "Access rules", "iam", _needing(create=_MEMBERS, read=_SEEING, delete=_MEMBERS)),
    ResourceType("workloads", "Workloads", "workload", _WORKLOADS),
    ResourceType("workspaces", "Workspaces", "workload", _WORKLOADS),
    ResourceType("trainings", "Trainings", "workload", _WORKLOADS),
    ResourceType("inferences", "Inferences", "workload", _WORKLOADS),
    ResourceType("templates", "Workload templates", "workload-asset", _WORKLOADS),
    ResourceType("compute-resources", "Compute resources", "workload-asset", _WORKLOADS),
    ResourceType("environments", "Environments", "workload-asset", _WORKLOADS),
    ResourceType("policies", "Policies", "workload", _written_with(Permission.MANAGE_PROJECT, read=_ANYBODY)),
    ResourceType(
        "workload-properties",
        "Priorities, types and categories",
        "workload",
        _written_with(Permission.MANAGE_DICTIONARY, read=_ANYBODY),
    ),
)
WIDE: Final = frozenset(resource.type for resource in RESOURCES if resource.wide)
NEEDS: Final[Mapping[tuple[str, str], Permissions]] = {
    (resource.type, action): permissions for resource in RESOURCES for action, permissions in resource.needs.items()
}


@dataclass(frozen=True, slots=True)
class PermissionSet:
    """What goes together in a role."""

    id: str
    name: str
    description: str
    permissions: Permissions


_VIEW: Final = frozenset({Permission.VIEW_PROJECT, Permission.VIEW_DEPARTMENT})
SETS: Final[Mapping[str, PermissionSet]] = {
    each.id: each
    for each in (
        PermissionSet("view", "View", "View departments, projects and their workloads.", _VIEW),
        PermissionSet(
            "submit-workloads",
            "Submit workloads",
            "Submit workloads; change, stop and delete your own workloads.",
            _VIEW | {Permission.SUBMIT, Permission.MANAGE_WORKLOAD},
        ),
        PermissionSet(
            "manage-workloads",
            "Manage workloads",
            "Change, stop and delete all workloads.",
            _VIEW | {Permission.MANAGE_ANY_WORKLOAD},
        ),
        PermissionSet(
            "view-access",
            "View access",
            "View access rules; with a role in the whole installation also users, service accounts and access keys.",
            _VIEW | _SEEING,
        ),
        PermissionSet(
            "manage-access-rules",
            "Manage access rules",
            "Grant and revoke roles within the scope, up to your own permissions.",
            _VIEW | _SEEING | {Permission.MANAGE_MEMBERS},
        ),
        PermissionSet(
            "view-event-history", "View event history", "View the audit trail.", frozenset({Permission.VIEW_AUDIT})
        ),
        PermissionSet(
            "manage-projects",
            "Manage projects",
            "Create, change and delete projects; set their quotas.",
            _VIEW | _PROJECTS,
        ),
        PermissionSet(
            "edit-departments",
            "Edit departments",
            "Change a department's description.",
            _VIEW | {Permission.MANAGE_DEPARTMENT},
        ),
        PermissionSet(
            "manage-departments",
            "Manage departments",
            "Create, change and delete departments; set their quotas.",
            _VIEW | _DEPARTMENTS | {Permission.MANAGE_DEPARTMENT},
        ),
        PermissionSet(
            "manage-clusters",
            "Manage clusters",
            "Connect clusters, change their schedulers and node pools.",
            frozenset({Permission.MANAGE_CLUSTERS}),
        ),
        PermissionSet(
            "manage-workload-properties",
            "Manage workload properties",
            "Change the priority dictionary and the defaults of workload types.",
            frozenset({Permission.MANAGE_DICTIONARY}),
        ),
        PermissionSet(
            "manage-access",
            "Manage access",
            "Manage users, service accounts, roles, and access rules of clusters and of the whole installation.",
            _ACCESS | _SEEING,
        ),
    )
}

_MEMBER: Final = ("view", "submit-workloads")
_OWNER: Final = (*_MEMBER, "manage-workloads", "manage-access-rules", "view-event-history")
PREDEFINED: Final[Mapping[str, tuple[str, ...]]] = {
    "viewer": ("view", "view-access"),
    "member": _MEMBER,
    "owner": _OWNER,
    "department-admin": (*_OWNER, "manage-projects", "edit-departments"),
    "platform-admin": tuple(SETS),
}
"""Permission sets of the roles that come with Rung, by their keys. What they hold is said here, not in their rows."""


@lru_cache(maxsize=1024)
def permissions_of_role(key: str, custom: tuple[str, ...] = ()) -> Permissions:
    """What a role allows: by its key if it is predefined, else by its permission sets. Unknown sets allow nothing."""
    sets = PREDEFINED.get(key, custom)
    return frozenset[Permission]().union(*(SETS[each].permissions for each in sets if each in SETS))


def allowed_actions(
    permissions: Permissions, everywhere: Permissions | None = None
) -> list[tuple[ResourceType, list[str]]]:
    """The table's rows with the actions that these permissions allow; rows without any are left out.

    `everywhere`: those that are held in the whole installation, where they are not all of them.
    """
    wide = permissions if everywhere is None else everywhere
    found = (
        (each, [name for name, needed in each.needs.items() if needed <= (wide if each.wide else permissions)])
        for each in RESOURCES
    )
    return [(resource, actions) for resource, actions in found if actions]
