"""Rows of the tenants' side, split by topic."""

from tenants.models.access import AccessRole, Membership, Role, ServiceAccount, User
from tenants.models.access_keys import AccessKey
from tenants.models.limits import IdleLimit, Limit, TimeLimit
from tenants.models.min_runtimes import MinRuntime
from tenants.models.organisation import Department, Project
from tenants.models.quota import DepartmentQuota, PriorityCap, ProjectQuota, Quota, Rank

__all__ = [
    "AccessKey",
    "AccessRole",
    "Department",
    "DepartmentQuota",
    "IdleLimit",
    "Limit",
    "Membership",
    "MinRuntime",
    "PriorityCap",
    "Project",
    "ProjectQuota",
    "Quota",
    "Rank",
    "Role",
    "ServiceAccount",
    "TimeLimit",
    "User",
]
