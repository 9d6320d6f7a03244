"""Every URL of the portal: pages, REST routes, the OpenAPI document and its viewer."""

from csp.decorators import csp_update
from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from clusters.web.urls import api_patterns as clusters_api
from portal import health
from portal.kit.api import error_responses
from tenants.access.views import sign_in
from tenants.urls import api_patterns as tenants_api
from workloads.urls import api_patterns as workloads_api

# The viewer sets styles from its own script; nothing else on that page is ours to colour.
docs = csp_update({"style-src": ["'unsafe-inline'"]})(SpectacularSwaggerSplitView.as_view(url_name="openapi"))

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("docs", docs, name="api-docs"),
    path("", include(workloads_api)),
    path("", include(tenants_api)),
    path("", include(clusters_api)),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("login/", sign_in.SignInView.as_view(), name="login"),
    path("login/code/", sign_in.second_factor_step, name="login-code"),
    path("login/single-sign-on/", sign_in.to_provider, name="single-sign-on"),
    path("login/single-sign-on/return/", sign_in.from_provider, name="single-sign-on-return"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/login/", sign_in.SignInView.as_view()),
    path("admin/", admin.site.urls),
    path("api/", include(api_urlpatterns)),
    path("", include("workloads.urls")),
    path("", include("tenants.urls")),
    path("", include("clusters.web.urls")),
]

handler400 = error_responses.bad_request
handler403 = error_responses.forbidden
handler404 = error_responses.not_found
handler500 = error_responses.server_error
