"""A policy: what a scope presets and demands of workloads of one kind."""

from django.db import models

from workloads.models.scoped import Scoped, once_per_scope
from workloads.policy_rules import Kind


class Policy(Scoped):
    """Defaults and rules in Run:ai's shape. One per kind and scope; those of wider scopes hold beside it."""

    kind = models.CharField(max_length=24, choices=[(str(each), str(each)) for each in Kind])
    document = models.JSONField(default=dict, help_text="{defaults, rules} as they were accepted.")

    class Meta(Scoped.Meta):
        ordering = ["kind", "scope", "name"]
        verbose_name_plural = "policies"
        constraints = [*Scoped.Meta.constraints, *once_per_scope("kind")]
