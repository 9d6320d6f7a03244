"""Every URL of the portal."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path

from portal import errors, health
from portal.core.sign_in import SignIn

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("login/", SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/login/", SignIn.as_view()),
    path("admin/", admin.site.urls),
    path("api/", include("portal.api_urls")),
    path("", include("workloads.urls")),
    path("", include("tenants.urls")),
]

handler400 = errors.bad_request
handler403 = errors.denied
handler404 = errors.not_found
handler500 = errors.failed
