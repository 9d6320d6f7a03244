"""How a cluster and its Prometheus are reached, with sealed credentials, and the worker slots of a cluster."""

from datetime import timedelta
from typing import Final

from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from clusters.inventory.models import Cluster

SOON: Final = timedelta(days=14)


class CredentialKind(models.TextChoices):
    """What Rung shows to the API server."""

    TOKEN = "token"  # noqa: S105 - the name of a kind
    CERTIFICATE = "certificate"


class ClusterCredential(models.Model):
    """Address and sealed credential of one cluster. Decrypted only in services/credentials.py."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="credential")
    server = models.CharField(max_length=500)
    tls_server_name = models.CharField(max_length=253, blank=True)
    ca = models.TextField(blank=True, help_text="PEM; empty: the authorities of the system.")
    insecure = models.BooleanField(default=False, help_text="The server's certificate is not checked.")
    kind = models.CharField(max_length=12, choices=CredentialKind.choices)
    sealed = models.TextField(editable=False)
    key_id = models.CharField(max_length=16, editable=False, help_text="Which key sealed it.")
    version = models.PositiveIntegerField(default=1, help_text="Grows with every change.")
    expires_at = models.DateTimeField(null=True, blank=True, help_text="When the credential ends, if it says so.")
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.server}"

    @property
    def ends_soon(self) -> bool:
        return self.expires_at is not None and self.expires_at < timezone.now() + SOON

    @property
    def bound_to(self) -> tuple[str, ...]:
        """The server and the certificate that the secret is sent to: changing any of them needs the secret again."""
        return (str(self.cluster_id), self.server, self.tls_server_name, str(self.insecure))


METRIC = "DCGM_FI_DEV_GPU_UTIL"
METRIC_NAME = RegexValidator(r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,127}\Z", "Letters, digits, underscores and colons.")


class MetricsSource(models.Model):
    """The Prometheus of a cluster. Its token is decrypted only in services/credentials.py."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="metrics_source")
    server = models.CharField(max_length=500)
    ca = models.TextField(blank=True, help_text="PEM; empty: the authorities of the system.")
    metric = models.CharField(max_length=128, default=METRIC, validators=[METRIC_NAME])
    sealed = models.TextField(blank=True, editable=False, help_text="Its token; empty: it asks for none.")
    key_id = models.CharField(max_length=16, blank=True, editable=False, help_text="Which key sealed it.")
    changed_at = models.DateTimeField(auto_now=True)
    read_at = models.DateTimeField(null=True, blank=True, help_text="When it last answered.")
    pods = models.PositiveIntegerField(default=0, help_text="For how many of our pods it knew GPUs then.")
    error = models.CharField(max_length=500, blank=True, help_text="Why it could not be read; empty: it could.")

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.server}"

    @property
    def bound_to(self) -> tuple[str, ...]:
        """Where the token may be sent: a change of it needs the token again."""
        return ("metrics", str(self.cluster_id), self.server)


class WorkerSlot(models.Model):
    """One of a cluster's places for a worker; free when it has no holder or its lease has expired."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="worker_slots")
    number = models.PositiveSmallIntegerField()
    holder = models.CharField(max_length=36, blank=True, help_text="Random id of the task that has it.")
    expires_at = models.DateTimeField(help_text="By the database's clock.")
    serving = models.PositiveBigIntegerField(default=0, help_text="Project that it works for now; 0: none.")
    cursor = models.PositiveBigIntegerField(
        default=0, help_text="Project that was served last: the next turn begins behind it."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "number"], name="clusters_worker_slot_once")]

    def __str__(self) -> str:
        return f"slot {self.number} of {self.cluster_id}"
