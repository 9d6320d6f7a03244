"""Admin console of quotas, GPU caps and runtime rules."""

from tenants.quotas.admin import quotas, runtime_rules

__all__ = ["quotas", "runtime_rules"]
