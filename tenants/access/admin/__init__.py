"""Admin console of users, service accounts, roles and access rules."""

from tenants.access.admin import roles, subjects

__all__ = ["roles", "subjects"]
