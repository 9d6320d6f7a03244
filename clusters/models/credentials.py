"""How a real cluster is reached. The secret part is sealed; what is bound inside the seal stands in `bound_to`."""

from datetime import timedelta
from typing import Final

from django.db import models
from django.utils import timezone

from clusters.models.estate import Cluster

SOON: Final = timedelta(days=14)


class CredentialKind(models.TextChoices):
    """What Rung shows to the API server."""

    TOKEN = "token"  # noqa: S105 - the name of a kind
    CERTIFICATE = "certificate"


class ClusterCredential(models.Model):
    """Address and sealed credential of one cluster. Only `clusters.credentials` opens the seal; nothing shows it."""

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
        """Within two weeks, or already."""
        return self.expires_at is not None and self.expires_at < timezone.now() + SOON

    @property
    def bound_to(self) -> tuple[str, ...]:
        """Where the secret may be sent, and to whom: a change of any of it needs the secret again."""
        return (str(self.cluster_id), self.server, self.tls_server_name, str(self.insecure))
