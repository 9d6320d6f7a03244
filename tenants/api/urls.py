"""REST routes of the tenants' side. No trailing slashes; fixed words win over ids."""

from django.urls import include, path

from tenants.api import audit_log, departments, projects, token, whoami

urlpatterns = [
    path("", include("tenants.api.subject_urls")),
    path("", include("tenants.api.physical_urls")),
    path("", include("tenants.api.access_urls")),
    path("v1/whoami", whoami.WhoAmI.as_view()),
    path("v1/token", token.Token.as_view()),
    path("v1/audit/log", audit_log.AuditLogs.as_view()),
    path("v1/audit/log/file", audit_log.AuditFile.as_view()),
    path("v2/token", token.OAuthToken.as_view()),
    path("v1/org-unit/projects", projects.Projects.as_view()),
    path("v1/org-unit/projects/count", projects.ProjectCount.as_view()),
    path("v1/org-unit/projects/<int:unit_id>", projects.OneProject.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/resources", projects.ProjectResources.as_view()),
    path("v1/org-unit/departments", departments.Departments.as_view()),
    path("v1/org-unit/departments/count", departments.DepartmentCount.as_view()),
    path("v1/org-unit/departments/<int:unit_id>", departments.OneDepartment.as_view()),
    path("v1/org-unit/departments/<int:unit_id>/resources", departments.DepartmentResources.as_view()),
]
