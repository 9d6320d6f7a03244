"""Admin console of users, service accounts, roles and access rules."""

from tenants.access.admin import subjects

__all__ = ["subjects"]
