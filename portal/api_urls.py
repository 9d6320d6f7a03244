"""Every REST route, its OpenAPI document and the pages that show it."""

from csp.decorators import csp_update
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

# The viewer sets styles from its own script; nothing else on that page is ours to colour.
docs = csp_update({"style-src": ["'unsafe-inline'"]})(SpectacularSwaggerSplitView.as_view(url_name="openapi"))

urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("docs", docs, name="api-docs"),
    path("", include("workloads.api.urls")),
    path("", include("tenants.api.urls")),
]
