"""Every URL of the portal."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path

from portal import errors, health
from tenants.views import sign_in

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("login/", sign_in.SignIn.as_view(), name="login"),
    path("login/code/", sign_in.second_step, name="login-code"),
    path("login/single-sign-on/", sign_in.to_provider, name="single-sign-on"),
    path("login/single-sign-on/return/", sign_in.from_provider, name="single-sign-on-return"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/login/", sign_in.SignIn.as_view()),
    path("admin/", admin.site.urls),
    path("api/", include("portal.api_urls")),
    path("", include("workloads.urls")),
    path("", include("tenants.urls")),
]

handler400 = errors.bad_request
handler403 = errors.denied
handler404 = errors.not_found
handler500 = errors.failed
