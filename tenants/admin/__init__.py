"""The admin console of the tenants' side: stock pages whose every save and deletion goes through the services."""

from tenants.admin.access import MembershipAdmin, PersonAdmin, ServiceAccountAdmin
from tenants.admin.limits import LimitAdmin
from tenants.admin.min_runtimes import MinRuntimeAdmin
from tenants.admin.organisation import DepartmentAdmin, ProjectAdmin
from tenants.admin.quotas import DepartmentQuotaAdmin, PriorityCapAdmin, ProjectQuotaAdmin
from tenants.admin.roles import AccessRoleAdmin

__all__ = [
    "AccessRoleAdmin",
    "DepartmentAdmin",
    "DepartmentQuotaAdmin",
    "LimitAdmin",
    "MembershipAdmin",
    "MinRuntimeAdmin",
    "PersonAdmin",
    "PriorityCapAdmin",
    "ProjectAdmin",
    "ProjectQuotaAdmin",
    "ServiceAccountAdmin",
]
