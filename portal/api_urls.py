"""Every REST route, its OpenAPI document and the pages that show it."""

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="openapi"), name="api-docs"),
    path("", include("tenants.api.urls")),
    path("", include("workloads.api.urls")),
]
