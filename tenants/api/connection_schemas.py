"""Bodies of how clusters are reached. Secrets are taken and never answered."""

from typing import Any, Final

from rest_framework import serializers

from tenants.api.physical_schemas import ClusterChange

LONGEST_TEXT: Final = 256 * 1024


class SecretField(serializers.CharField):
    """A text that is only ever taken: its spaces are its own."""

    def __init__(self, **about: Any) -> None:
        super().__init__(
            write_only=True, required=False, allow_blank=True, trim_whitespace=False, max_length=LONGEST_TEXT, **about
        )


class ConnectionChange(serializers.Serializer[Any]):
    """How a cluster is reached: a kubeconfig, or its parts."""

    kubeconfig = SecretField(help_text="With one context and its data inside; instead of all parts.")
    server = serializers.CharField(required=False, max_length=500)
    ca = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, max_length=LONGEST_TEXT, help_text="PEM."
    )
    token = SecretField(help_text="Without it the stored credential stays, as long as the address does.")
    tlsServerName = serializers.CharField(required=False, allow_blank=True, max_length=253)
    insecure = serializers.BooleanField(required=False, help_text="Only where the operator allows it.")


class Reconnection(ConnectionChange):
    """Another way to a known cluster."""

    adopt = serializers.BooleanField(
        required=False, default=False, help_text="Another cluster, made anew in its place, is taken for it."
    )


class NewCluster(ConnectionChange, ClusterChange):
    """What Run:ai takes of a new cluster; beyond it, its scheduler and how it is reached, which Rung needs."""

    domain = serializers.CharField(max_length=253, required=False, allow_null=True, allow_blank=True)
    version = serializers.CharField(max_length=63, required=False, allow_null=True, allow_blank=True)
    flavour = serializers.CharField(max_length=40, required=False, default="kube", help_text="Its scheduler.")


class ConnectionSchema(serializers.Serializer[Any]):
    """What may be told of a connection."""

    server = serializers.CharField()
    tlsServerName = serializers.CharField(allow_blank=True)
    ownAuthority = serializers.BooleanField()
    insecure = serializers.BooleanField()
    kind = serializers.CharField(help_text="Of its credential: token or certificate.")
    expiresAt = serializers.DateTimeField(allow_null=True)
    changedAt = serializers.DateTimeField()


class MetricsSourceChange(serializers.Serializer[Any]):
    """Where a cluster's Prometheus is."""

    server = serializers.CharField(max_length=500)
    ca = serializers.CharField(
        required=False, default="", allow_blank=True, trim_whitespace=False, max_length=LONGEST_TEXT, help_text="PEM."
    )
    token = SecretField(help_text="Without it the stored one stays, as long as the address does.")
    metric = serializers.CharField(max_length=128, required=False, help_text="Percent per GPU, labelled with its pod.")


class MetricsSourceSchema(serializers.Serializer[Any]):
    """A cluster's Prometheus, and how it answered last."""

    server = serializers.CharField()
    ownAuthority = serializers.BooleanField()
    metric = serializers.CharField()
    hasToken = serializers.BooleanField()
    readAt = serializers.DateTimeField(allow_null=True)
    pods = serializers.IntegerField(help_text="For how many pods it knew GPUs then.")
    error = serializers.CharField(allow_blank=True)
