"""Every REST route, its OpenAPI document and the pages that show it."""

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", SpectacularAPIView.as_view(), name="openapi"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="openapi"), name="api-docs"),
]
if find_spec("workloads.selectors"):
    urlpatterns.append(path("", include("workloads.api.urls")))
if find_spec("tenants.api.urls"):
    urlpatterns.append(path("", include("tenants.api.urls")))
