"""T46: a cluster's secret goes in and never comes out, goes only where it was entered for, and changes its keys."""

import json
import pickle
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core import serializers
from django.core.management import CommandError, call_command
from django.forms.models import model_to_dict
from django.test import Client
from pytest_django.fixtures import Settings

from clusters import apps
from clusters.connection.models import ClusterCredential
from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.connection.services.gateways import connection_of, credential_version, rotate_credentials
from clusters.connection.services.registration import change_connection, register_cluster
from clusters.inventory.models import Cluster
from clusters.ports.gateway import CredentialUnreadable
from portal.audit.models import AuditRecord
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from portal.kit.security.encryption import DecryptionFailed, NoEncryptionKey, SecretBox, new_key
from portal.kit.security.logging_config import redact
from tenants.access.models import User
from tests.clusters.connection.answering import Answering, entered
from tests.clusters.connection.kubeconfigs import TOKEN, b64, kubeconfig, text
from tests.clusters.connection.kubeconfigs import client as client_pair
from tests.support.certificates import authority

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


def registered(name: str = "real", uid: str = "uid-1", **parts: Any) -> Cluster:
    return register_cluster(name=name, flavour="kube", source=entered(**parts), actor=SYSTEM, opens=Answering(uid=uid))[
        0
    ]


def change(cluster: Cluster, source: ConnectionFormData, opens: Answering | None = None) -> ClusterCredential:
    return change_connection(cluster=cluster, source=source, actor=SYSTEM, opens=opens or Answering(uid=cluster.uid))


def test_t46_the_database_holds_no_secret() -> None:
    registered()
    row = ClusterCredential.objects.get()
    stored = json.dumps(serializers.serialize("python", [row]), default=str)
    assert TOKEN not in stored
    assert b64(TOKEN).rstrip("=") not in stored


def test_t46_a_client_key_is_sealed_as_well() -> None:
    pair = {"client-certificate-data": b64(client_pair().pem), "client-key-data": b64(client_pair().key)}
    source = text(kubeconfig(user={"token": None, **pair}))
    cluster, _ = register_cluster(name="real", flavour="kube", source=source, actor=SYSTEM, opens=Answering())
    row = ClusterCredential.objects.get()
    assert "PRIVATE KEY" not in json.dumps(serializers.serialize("python", [row]), default=str)
    assert connection_of(cluster).key == client_pair().key
    assert row.expires_at is not None


def test_t46_nothing_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    cluster = registered()
    row = ClusterCredential.objects.get()
    connection = connection_of(cluster)
    shown = [repr(connection), str(connection), repr(entered()), repr(row), str(row), repr(cluster)]
    shown.append(json.dumps(list(AuditRecord.objects.values_list("detail", flat=True)), default=str))
    shown.append(caplog.text)
    assert all(TOKEN not in each for each in shown)
    assert TOKEN not in str(model_to_dict(row))


def test_t46_no_page_export_or_console_shows_it(client_of: Clients, admin: User) -> None:
    cluster, client = registered(), client_of(admin)
    sealed = ClusterCredential.objects.get().sealed
    for page in (
        f"/clusters/{cluster.name}/",
        f"/clusters/{cluster.name}/connection/",
        "/clusters/",
        "/audit/",
        "/admin/clusters/cluster/",
        f"/admin/clusters/cluster/{cluster.pk}/change/",
    ):
        answer = client.get(page)
        assert answer.status_code == 200, page
        body = answer.content.decode()
        assert TOKEN not in body
        assert sealed not in body


def test_t46_what_is_refused_does_not_come_back(client_of: Clients, admin: User) -> None:
    client = client_of(admin)
    typed = {"name": "Bad Name", "flavour": "kube", "way": "parts", "server": "http://x", "ca": "hello", "token": TOKEN}
    answer = client.post("/connect-cluster/", typed)
    body = answer.content.decode()
    assert answer.status_code == 422
    assert TOKEN not in body
    assert "hello" in body
    pasted = text(kubeconfig(user={"exec": {}})).decode()
    answer = client.post(
        "/connect-cluster/", {"name": "a", "flavour": "kube", "way": "kubeconfig", "kubeconfig": pasted}
    )
    assert answer.status_code == 422
    assert "/users/0/user/exec" in answer.content.decode()
    assert TOKEN not in answer.content.decode()
    assert TOKEN not in json.dumps(list(AuditRecord.objects.values_list("detail", flat=True)), default=str)


def test_t46_logs_redact_what_carries_one() -> None:
    cluster = registered()
    sealed = ClusterCredential.objects.get().sealed
    event = redact({"connection": connection_of(cluster), "token": TOKEN, "sealed": sealed, "client-key-data": TOKEN})
    assert TOKEN not in str(event)
    assert sealed not in str(event)
    assert "MIGH" not in redact("-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----")


def test_t46_a_change_without_a_secret_keeps_it() -> None:
    cluster = registered()
    change(cluster, entered(token=""))
    assert connection_of(cluster).token == TOKEN


@pytest.mark.parametrize(
    "parts",
    [{"server": "https://evil.example:6443"}, {"server": "https://api.example.org:6444"},
     {"server": "https://api.example.org:6443/evil"}, {"tls_server_name": "evil.example"},
     {"ca": ""}, {"ca": authority("another").pem}, {"insecure": True, "ca": ""}],
    ids=["another host", "another port", "another path", "another name to prove", "public authorities",
         "another authority", "no proof at all"],
)  # fmt: skip
def test_t46_another_address_needs_the_secret_again(settings: Settings, parts: dict[str, Any]) -> None:
    settings.RUNG_ALLOW_INSECURE_CLUSTERS = True
    cluster, evil = registered(), Answering()
    with pytest.raises(ValidationFailed) as error:
        change(cluster, entered(token="", **parts), evil)
    assert (error.value.status, error.value.code) == (422, "secret_needed")
    assert evil.opened == []
    assert connection_of(cluster).server == "https://api.example.org:6443"
    change(cluster, entered(**parts))
    assert connection_of(cluster).server == parts.get("server", "https://api.example.org:6443")


def test_a_row_copied_to_another_cluster_does_not_open() -> None:
    one, other = registered("one"), registered("two", uid="uid-2", token="another")
    sealed = ClusterCredential.objects.get(cluster=one).sealed
    ClusterCredential.objects.filter(cluster=other).update(sealed=sealed)
    with pytest.raises(CredentialUnreadable) as error:
        connection_of(other)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    "change", [{"server": "https://evil.example:6443"}, {"insecure": True}, {"tls_server_name": "e"}]
)
def test_a_row_bent_to_another_address_does_not_open(change: dict[str, Any]) -> None:
    cluster = registered()
    ClusterCredential.objects.update(**change)
    with pytest.raises(CredentialUnreadable):
        connection_of(cluster)


def test_t44_an_unchecked_server_is_left_when_the_operator_takes_the_word_back(settings: Settings) -> None:
    settings.RUNG_ALLOW_INSECURE_CLUSTERS = True
    cluster = registered(insecure=True, ca="")
    assert connection_of(cluster).insecure
    settings.RUNG_ALLOW_INSECURE_CLUSTERS = False
    with pytest.raises(CredentialUnreadable, match="Add the certificate authority"):
        connection_of(cluster)


def test_a_cluster_without_a_credential_says_so() -> None:
    cluster = registered()
    ClusterCredential.objects.all().delete()
    with pytest.raises(CredentialUnreadable, match="No credential"):
        connection_of(cluster)
    assert credential_version(cluster) == ""


def test_keys_rotate_without_changing_the_connection(settings: Settings) -> None:
    cluster = registered()
    before = credential_version(cluster)
    old = list(settings.RUNG_CREDENTIAL_KEYS)
    settings.RUNG_CREDENTIAL_KEYS = [new_key(), *old]
    said = StringIO()
    call_command("rotate_credentials", stdout=said)
    call_command("rotate_credentials", stdout=said)
    assert said.getvalue().splitlines() == [
        "1 re-encrypted, 0 already current, 0 cannot be decrypted.",
        "0 re-encrypted, 1 already current, 0 cannot be decrypted.",
    ]
    settings.RUNG_CREDENTIAL_KEYS = settings.RUNG_CREDENTIAL_KEYS[:1]
    assert connection_of(cluster).token == TOKEN
    assert credential_version(cluster) == before
    assert AuditRecord.objects.filter(action="cluster.rotate_credentials").count() == 1


def test_a_row_whose_key_is_gone_is_counted_and_left(settings: Settings) -> None:
    registered("one")
    sealed = ClusterCredential.objects.get().sealed
    settings.RUNG_CREDENTIAL_KEYS = [new_key()]
    registered("two", uid="uid-2")
    with pytest.raises(CommandError):
        call_command("rotate_credentials", stdout=StringIO())
    done = rotate_credentials(actor=SYSTEM)
    assert (done.renewed, done.current, done.broken) == (0, 1, 1)
    assert ClusterCredential.objects.get(cluster__name="one").sealed == sealed


def test_a_fresh_key_is_printed_and_nothing_is_changed(settings: Settings) -> None:
    settings.RUNG_CREDENTIAL_KEYS = []
    said = StringIO()
    call_command("rotate_credentials", "--new-key", stdout=said)
    assert SecretBox([said.getvalue().strip()]).key_id


def test_without_a_key_no_cluster_is_taken_in(settings: Settings) -> None:
    settings.RUNG_CREDENTIAL_KEYS = []
    with pytest.raises(Exception, match="RUNG_CREDENTIAL_KEYS"):
        registered()
    assert not Cluster.objects.exists()
    with pytest.raises(CommandError):
        call_command("rotate_credentials")


def test_bad_keys_are_found_at_start(settings: Settings) -> None:
    settings.RUNG_CREDENTIAL_KEYS = ["short"]
    assert [each.id for each in apps.credentials_can_be_sealed()] == ["clusters.E002"]
    settings.RUNG_CREDENTIAL_KEYS = []
    assert [each.id for each in apps.a_key_is_set()] == ["clusters.E001"]
    settings.RUNG_ALLOW_INSECURE_CLUSTERS = True
    assert [each.id for each in apps.certificates_are_checked()] == ["clusters.W003"]


def test_a_seal_opens_only_for_what_it_was_made_for() -> None:
    key = new_key()
    sealed = SecretBox([key]).seal({"token": TOKEN}, bound_to=["a", "b"])
    assert SecretBox([new_key(), key]).open(sealed, bound_to=["a", "b"]) == {"token": TOKEN}
    for keys, bound in (([key], ["a"]), ([key], ["b", "a"]), ([new_key()], ["a", "b"])):
        with pytest.raises(DecryptionFailed):
            SecretBox(keys).open(sealed, bound_to=bound)
    with pytest.raises(DecryptionFailed):
        SecretBox([key]).open(sealed[:-4] + "AAAA", bound_to=["a", "b"])
    with pytest.raises(NoEncryptionKey):
        SecretBox([])
    assert TOKEN.encode() not in pickle.dumps(sealed)
