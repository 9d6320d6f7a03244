"""REST routes of the tenants' side. No trailing slashes."""

from django.urls import path

from tenants.api import token

urlpatterns = [
    path("v1/token", token.Token.as_view()),
]
