"""The admin console of the tenants' side: stock pages whose every save and deletion goes through the services."""

from tenants.admin.access import MembershipAdmin, PersonAdmin, ServiceAccountAdmin
from tenants.admin.min_runtimes import MinRuntimeAdmin
from tenants.admin.organisation import DepartmentAdmin, ProjectAdmin
from tenants.admin.quotas import DepartmentQuotaAdmin, PriorityCapAdmin, ProjectQuotaAdmin
from tenants.admin.time_limits import TimeLimitAdmin

__all__ = [
    "DepartmentAdmin",
    "DepartmentQuotaAdmin",
    "MembershipAdmin",
    "MinRuntimeAdmin",
    "PersonAdmin",
    "PriorityCapAdmin",
    "ProjectAdmin",
    "ProjectQuotaAdmin",
    "ServiceAccountAdmin",
    "TimeLimitAdmin",
]
