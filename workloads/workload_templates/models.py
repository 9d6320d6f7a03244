"""What people prepare for submissions: workload templates, and the assets they are put together from."""

from django.db import models

from workloads.policies.models import ScopedModel, once_per_scope


class AssetKind(models.TextChoices):
    """What an asset describes. The words are Run:ai's."""

    COMPUTE = "compute", "compute resource"
    ENVIRONMENT = "environment", "environment"


class TemplateKind(models.TextChoices):
    """What a template is submitted as: the word in the address of its native submission."""

    WORKSPACES = "workspaces", "workspace"
    TRAININGS = "trainings", "training"
    DISTRIBUTED = "distributed", "distributed training"
    INFERENCES = "inferences", "inference"


class TemplateBase(ScopedModel):
    """Values for submissions, kept under a name for everybody in a scope."""

    description = models.CharField(max_length=250, blank=True)
    spec = models.JSONField(default=dict, help_text="As it was accepted, in Run:ai's fields.")
    created_by_kind = models.CharField(max_length=20)
    created_by_id = models.CharField(max_length=64)

    class Meta(ScopedModel.Meta):
        abstract = True


class Asset(TemplateBase):
    """A size (compute), or an image with its command and settings (environment)."""

    kind = models.CharField(max_length=12, choices=AssetKind.choices)
    supports = models.JSONField(default=dict, help_text="Kinds of workloads it is meant for; empty: all.")

    class Meta(TemplateBase.Meta):
        ordering = ["kind", "name", "id"]
        constraints = [*ScopedModel.Meta.constraints, *once_per_scope("kind", "name")]


class WorkloadTemplate(TemplateBase):
    """A submission of one kind, filled in beforehand. What it leaves out its assets say."""

    kind = models.CharField(max_length=12, choices=TemplateKind.choices)
    environment = models.ForeignKey(Asset, on_delete=models.RESTRICT, null=True, blank=True, related_name="+")
    compute = models.ForeignKey(Asset, on_delete=models.RESTRICT, null=True, blank=True, related_name="+")
    master = models.JSONField(null=True, blank=True, help_text="`spec` of the leading pod of a distributed training.")
    master_same = models.BooleanField(null=True, blank=True, help_text="Run:ai's masterSpecSameAsWorker.")
    master_environment = models.ForeignKey(Asset, on_delete=models.RESTRICT, null=True, blank=True, related_name="+")
    master_compute = models.ForeignKey(Asset, on_delete=models.RESTRICT, null=True, blank=True, related_name="+")

    class Meta(TemplateBase.Meta):
        ordering = ["kind", "name", "id"]
        constraints = [*ScopedModel.Meta.constraints, *once_per_scope("kind", "name")]
