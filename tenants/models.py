"""Rows of the tenants' side, split by topic."""

from tenants.access.models import AccessKey, AccessRole, Membership, Role, ServiceAccount, User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import (
    DepartmentQuota,
    IdleLimit,
    MinRuntime,
    PriorityCap,
    ProjectQuota,
    Quota,
    Rank,
    RuntimeLimit,
    TimeLimit,
)

__all__ = [
    "AccessKey",
    "AccessRole",
    "Department",
    "DepartmentQuota",
    "IdleLimit",
    "Membership",
    "MinRuntime",
    "PriorityCap",
    "Project",
    "ProjectQuota",
    "Quota",
    "Rank",
    "Role",
    "RuntimeLimit",
    "ServiceAccount",
    "TimeLimit",
    "User",
]
