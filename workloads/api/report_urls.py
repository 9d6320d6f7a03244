"""REST routes of usage reports."""

from django.urls import path

from workloads.api import reports

urlpatterns = [
    path("v1/org-unit/reports", reports.Reports.as_view()),
    path("v1/org-unit/reports/count", reports.ReportCount.as_view()),
    path("v1/org-unit/reports/availability", reports.Availability.as_view()),
    path("v1/org-unit/reports/<uuid:report_id>", reports.OneReport.as_view()),
    path("v1/org-unit/reports/<uuid:report_id>/file", reports.ReportFile.as_view()),
]
