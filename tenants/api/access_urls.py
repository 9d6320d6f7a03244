"""REST routes of roles, permissions and access rules."""

from django.urls import path

from tenants.api import access_rules, me_access, permissions, roles

urlpatterns = [
    path("v1/authorization/access-rules", access_rules.AccessRules.as_view()),
    path("v1/authorization/access-rules/count", access_rules.AccessRuleCount.as_view()),
    path("v1/authorization/access-rules/batch", access_rules.AccessRuleBatch.as_view()),
    path("v1/authorization/access-rules/batch-create", access_rules.AccessRuleBatchCreate.as_view()),
    path("v1/authorization/access-rules/<int:rule_id>", access_rules.OneAccessRule.as_view()),
    path("v1/authorization/me/access-rules", me_access.OwnRules.as_view()),
    path("v1/authorization/me/access-rules/count", me_access.OwnRuleCount.as_view()),
    path("v1/authorization/permissions", permissions.Permissions.as_view()),
    path("v1/authorization/permission-sets", permissions.PermissionSets.as_view()),
    path("v1/authorization/permission-sets/<str:set_id>", permissions.OnePermissionSet.as_view()),
    path("v1/authorization/permitted-scopes", permissions.PermittedScopes.as_view()),
    path("v1/authorization/roles", roles.RolesV1.as_view()),
    path("v1/authorization/roles/<int:role_id>", roles.OneRoleV1.as_view()),
    path("v2/authorization/roles", roles.RolesV2.as_view()),
    path("v2/authorization/roles/<int:role_id>", roles.OneRoleV2.as_view()),
]
