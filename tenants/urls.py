"""Routes of the pages and of the REST API of tenants. No trailing slashes below /api/; fixed words win over ids."""

from django.urls import path

from tenants.access.api.access_rules import (
    AccessRuleBatch,
    AccessRuleBatchCreate,
    AccessRuleCount,
    AccessRuleDetail,
    AccessRules,
)
from tenants.access.api.credentials import (
    AccessKeyDetail,
    AccessKeys,
    AccessKeySecret,
    AdministeredKeyDetail,
    AdministeredKeys,
    OAuthTokenExchange,
    TokenExchange,
)
from tenants.access.api.roles import (
    OwnPermissions,
    PermissionSetDetail,
    PermissionSets,
    PermittedScopes,
    RoleDetailV1,
    RoleDetailV2,
    RolesV1,
    RolesV2,
)
from tenants.access.api.service_accounts import (
    AdministeredApplicationDetail,
    AdministeredApplications,
    ApplicationDetail,
    Applications,
    ApplicationSecret,
    ServiceAccountDetail,
    ServiceAccounts,
    ServiceAccountSecret,
    UserApplicationDetail,
    UserApplications,
    UserApplicationSecret,
)
from tenants.access.api.users import (
    OwnPassword,
    OwnRuleCount,
    OwnRules,
    UserCount,
    UserDetail,
    UserLogout,
    UserPassword,
    Users,
    WhoAmI,
)
from tenants.access.views import account
from tenants.audit_log import views as audit_log_views
from tenants.audit_log.api import AuditFile, AuditLogs
from tenants.organisation import views as organisation_views
from tenants.organisation.api import (
    DepartmentCount,
    DepartmentDetail,
    DepartmentResources,
    Departments,
    ProjectCount,
    ProjectDetail,
    ProjectResources,
    Projects,
)
from tenants.organisation.models import Department, Project
from tenants.quotas.api.caps_and_limits import (
    DeservedEnforcement,
    MinRuntimeList,
    PriorityCapDetail,
    PriorityCaps,
    limit_route,
    limits_route,
    min_runtime_route,
)
from tenants.quotas.api.pool_quotas import (
    DepartmentPoolCount,
    DepartmentPools,
    ProjectPoolCount,
    ProjectPools,
    Quotas,
    QuotaWhatIf,
    Ranks,
)
from tenants.quotas.models import IdleLimit, TimeLimit
from tenants.usage.api import (
    DepartmentBorrowing,
    DepartmentMetrics,
    DepartmentTelemetry,
    ProjectBorrowing,
    ProjectMetrics,
    ProjectTelemetry,
)

app_name = "tenants"
urlpatterns = [
    path("projects/", organisation_views.project_list, name="projects"),
    path("departments/<int:department_id>/", organisation_views.department_detail, name="department"),
    path(
        "departments/<int:department_id>/enforce-deserved/",
        organisation_views.enforce_deserved,
        name="enforce-deserved",
    ),
    path("projects/<slug:name>/", organisation_views.project_detail, name="project"),
    path("access-keys/", account.keys, name="access-keys"),
    path("access-keys/<uuid:key_id>/secret/", account.rotate, name="rotate-key"),
    path("access-keys/<uuid:key_id>/revoke/", account.revoke, name="revoke-key"),
    path("audit/", audit_log_views.trail, name="audit"),
    path("audit/csv/", audit_log_views.log_download, {"kind": "csv"}, name="audit-csv"),
    path("audit/json/", audit_log_views.log_download, {"kind": "json"}, name="audit-json"),
    path("security/", account.security, name="security"),
    path("security/second-factor/", account.set_up, name="second-factor"),
    path("security/<slug:name>/", account.perform_action, name="security-act"),
]

api_patterns = [
    path("v1/access-keys", AccessKeys.as_view()),
    path("v1/access-keys/<uuid:key_id>", AccessKeyDetail.as_view()),
    path("v1/access-keys/<uuid:key_id>/secret", AccessKeySecret.as_view()),
    path("v1/administration/access-keys", AdministeredKeys.as_view()),
    path("v1/administration/access-keys/<uuid:key_id>", AdministeredKeyDetail.as_view()),
    path("v1/user-applications", UserApplications.as_view()),
    path("v1/user-applications/<uuid:key_id>", UserApplicationDetail.as_view()),
    path("v1/user-applications/<uuid:key_id>/secret", UserApplicationSecret.as_view()),
    path("v1/administration/user-applications", AdministeredApplications.as_view()),
    path("v1/administration/user-applications/<uuid:key_id>", AdministeredApplicationDetail.as_view()),
    path("v1/service-accounts", ServiceAccounts.as_view()),
    path("v1/service-accounts/<uuid:account_id>", ServiceAccountDetail.as_view()),
    path("v1/service-accounts/<uuid:account_id>/secret", ServiceAccountSecret.as_view()),
    path("v1/apps", Applications.as_view()),
    path("v1/apps/<uuid:account_id>", ApplicationDetail.as_view()),
    path("v1/apps/<uuid:account_id>/secret", ApplicationSecret.as_view()),
    path("v1/users", Users.as_view()),
    path("v1/users/count", UserCount.as_view()),
    path("v1/users/<int:user_id>", UserDetail.as_view()),
    path("v1/users/<int:user_id>/password", UserPassword.as_view()),
    path("v1/users/<int:user_id>/logout", UserLogout.as_view()),
    path("v1/me/password", OwnPassword.as_view()),
    path("v1/authorization/access-rules", AccessRules.as_view()),
    path("v1/authorization/access-rules/count", AccessRuleCount.as_view()),
    path("v1/authorization/access-rules/batch", AccessRuleBatch.as_view()),
    path("v1/authorization/access-rules/batch-create", AccessRuleBatchCreate.as_view()),
    path("v1/authorization/access-rules/<int:rule_id>", AccessRuleDetail.as_view()),
    path("v1/authorization/me/access-rules", OwnRules.as_view()),
    path("v1/authorization/me/access-rules/count", OwnRuleCount.as_view()),
    path("v1/authorization/permissions", OwnPermissions.as_view()),
    path("v1/authorization/permission-sets", PermissionSets.as_view()),
    path("v1/authorization/permission-sets/<str:set_id>", PermissionSetDetail.as_view()),
    path("v1/authorization/permitted-scopes", PermittedScopes.as_view()),
    path("v1/authorization/roles", RolesV1.as_view()),
    path("v1/authorization/roles/<int:role_id>", RoleDetailV1.as_view()),
    path("v2/authorization/roles", RolesV2.as_view()),
    path("v2/authorization/roles/<int:role_id>", RoleDetailV2.as_view()),
    path("v1/quotas", Quotas.as_view()),
    path("v1/quotas/what-if", QuotaWhatIf.as_view()),
    path("v1/org-unit/priorities", Ranks.as_view()),
    path("v1/org-unit/projects/telemetry", ProjectTelemetry.as_view()),
    path("v1/org-unit/projects/node-pool-resources", ProjectPools.as_view()),
    path("v1/org-unit/projects/node-pool-resources/count", ProjectPoolCount.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/metrics", ProjectMetrics.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/borrowing", ProjectBorrowing.as_view()),
    path("v1/org-unit/departments/<int:unit_id>/borrowing", DepartmentBorrowing.as_view()),
    path("v1/org-unit/departments/telemetry", DepartmentTelemetry.as_view()),
    path("v1/org-unit/departments/node-pool-resources", DepartmentPools.as_view()),
    path("v1/org-unit/departments/node-pool-resources/count", DepartmentPoolCount.as_view()),
    path("v1/org-unit/departments/<int:unit_id>/metrics", DepartmentMetrics.as_view()),
    path("v1/org-unit/priority-caps", PriorityCaps.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/priority-caps/<str:priority_name>", PriorityCapDetail.as_view()),
    path("v1/org-unit/min-runtimes", MinRuntimeList.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/min-runtime", min_runtime_route(Project).as_view()),
    path("v1/org-unit/departments/<int:unit_id>/enforce-deserved", DeservedEnforcement.as_view()),
    path("v1/org-unit/departments/<int:unit_id>/min-runtime", min_runtime_route(Department).as_view()),
    path("v1/org-unit/time-limits", limits_route(TimeLimit).as_view()),
    path("v1/org-unit/idle-limits", limits_route(IdleLimit).as_view()),
    *(
        path(f"v1/org-unit/{units}/<int:unit_id>/{limits}/<str:category_name>", limit_route(unit, kind).as_view())
        for units, unit in (("projects", Project), ("departments", Department))
        for limits, kind in (("time-limits", TimeLimit), ("idle-limits", IdleLimit))
    ),
    path("v1/whoami", WhoAmI.as_view()),
    path("v1/token", TokenExchange.as_view()),
    path("v1/audit/log", AuditLogs.as_view()),
    path("v1/audit/log/file", AuditFile.as_view()),
    path("v2/token", OAuthTokenExchange.as_view()),
    path("v1/org-unit/projects", Projects.as_view()),
    path("v1/org-unit/projects/count", ProjectCount.as_view()),
    path("v1/org-unit/projects/<int:unit_id>", ProjectDetail.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/resources", ProjectResources.as_view()),
    path("v1/org-unit/departments", Departments.as_view()),
    path("v1/org-unit/departments/count", DepartmentCount.as_view()),
    path("v1/org-unit/departments/<int:unit_id>", DepartmentDetail.as_view()),
    path("v1/org-unit/departments/<int:unit_id>/resources", DepartmentResources.as_view()),
]
