"""Rows of the tenants' side, split by topic."""

from tenants.models.access import Membership, Role, ServiceAccount, User
from tenants.models.organisation import Department, Project
from tenants.models.quota import DepartmentQuota, PriorityCap, ProjectQuota, Quota, Rank

__all__ = [
    "Department",
    "DepartmentQuota",
    "Membership",
    "PriorityCap",
    "Project",
    "ProjectQuota",
    "Quota",
    "Rank",
    "Role",
    "ServiceAccount",
    "User",
]
