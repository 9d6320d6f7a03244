"""T41, T43-T45: a kubeconfig is data. What it asks to be run, opened, asked or believed is refused where it stands."""

import builtins
import io
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.kit.errors import PayloadTooLarge
from tests.clusters.connection.kubeconfigs import TOKEN, b64, ca, client, kubeconfig, pointers, read, refusal, text
from tests.support.certificates import authority, signed

USER = "/users/0/user"
CLUSTER = "/clusters/0/cluster"
EMPTY = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything this process starts, opens or asks while a kubeconfig is read."""
    seen: list[str] = []

    def noting(module: Any, name: str) -> None:
        real = getattr(module, name)

        def act(*args: Any, **kwargs: Any) -> Any:
            seen.append(f"{name} {args[:1]}")
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, act)

    for module, name in (
        (builtins, "open"),
        (io, "open"),
        (os, "open"),
        (os, "stat"),
        (os, "system"),
        (subprocess, "Popen"),
        (socket, "getaddrinfo"),
    ):
        noting(module, name)
    yield seen
    monkeypatch.undo()


def test_only_what_is_needed_is_taken_of_a_good_one() -> None:
    connection = read(kubeconfig(cluster={"tls-server-name": "kubernetes"}))
    assert connection.server == "https://api.example.org:6443"
    assert (connection.token, connection.tls_server_name, connection.insecure) == (TOKEN, "kubernetes", False)
    assert connection.ca == ca().pem


def test_a_client_certificate_serves_as_well_as_a_token() -> None:
    pair = {"client-certificate-data": b64(client().pem), "client-key-data": b64(client().key)}
    connection = read(kubeconfig(user={"token": None, **pair}))
    assert (connection.certificate, connection.key, connection.token) == (client().pem, client().key, "")


@pytest.mark.parametrize(
    ("user", "field"),
    [
        pytest.param(
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["marker"]}},
            "exec",
            id="a command",
        ),
        pytest.param(
            {"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/sh", "cmd-args": "-c id"}}},
            "auth-provider",
            id="a command of a provider",
        ),
        pytest.param(
            {"auth-provider": {"name": "oidc", "config": {"idp-issuer-url": "https://169.254.169.254"}}},
            "auth-provider",
            id="an issuer to ask",
        ),
    ],
)
@pytest.mark.parametrize("beside", [True, False], ids=["beside a token", "alone"])
def test_t41_nothing_is_run_for_a_credential(
    acts: list[str], user: dict[str, Any], field: str, *, beside: bool
) -> None:
    data = text(kubeconfig(user={**user, **({} if beside else {"token": None})}))
    acts.clear()
    error = refusal(data)
    assert acts == []
    assert error.status == 422
    assert pointers(error)[f"{USER}/{field}"] == "not_taken"
    assert "token of a ServiceAccount" in error.message


@pytest.mark.parametrize("path", ["/etc/passwd", "secret", "../secret", "~/.kube/secret"])
@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("user", "tokenFile"),
        ("user", "client-certificate"),
        ("user", "client-key"),
        ("cluster", "certificate-authority"),
    ],
)
def test_t43_no_file_is_opened(
    acts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, field: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("canary")
    document = kubeconfig(**{part: {field: path}})
    data = text(document)
    acts.clear()
    error = refusal(data)
    assert acts == []
    assert error.status == 422
    assert pointers(error) == {f"{CLUSTER if part == 'cluster' else USER}/{field}": "not_taken"}
    assert "--flatten" in error.message


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("cluster", "proxy-url", "http://127.0.0.1:3128"),
        ("user", "as", "system:admin"),
        ("user", "as-uid", "1"),
        ("user", "as-groups", ["system:masters"]),
        ("user", "as-user-extra", {"scopes": ["everything"]}),
        ("user", "username", "admin"),
        ("user", "password", "hunter2"),
        ("user", "Token", "of another case"),
        ("cluster", "disable-compression", True),
        ("cluster", "extensions", []),
    ],
)
def test_t44_proxies_and_other_identities_are_refused_by_name(part: str, field: str, value: Any) -> None:
    error = refusal(kubeconfig(**{part: {field: value}}))
    assert error.status == 422
    assert pointers(error) == {f"{CLUSTER if part == 'cluster' else USER}/{field}": "not_taken"}
    assert field in error.message


def test_t44_a_server_that_is_not_checked_needs_the_operators_word() -> None:
    document = kubeconfig(cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": None})
    error = refusal(document)
    assert pointers(error) == {f"{CLUSTER}/insecure-skip-tls-verify": "insecure"}
    assert "RUNG_ALLOW_INSECURE_CLUSTERS" in error.message
    assert read(document, allow_insecure=True).insecure


def test_t44_an_authority_beside_no_check_is_a_contradiction() -> None:
    document = kubeconfig(cluster={"insecure-skip-tls-verify": True})
    with pytest.raises(Exception, match="not both"):
        read(document, allow_insecure=True)


OTHER = [{"name": "y", "context": {"cluster": "c", "user": "u"}}]


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        pytest.param({"contexts": [*kubeconfig()["contexts"], *OTHER]}, "/contexts", "one_needed", id="two contexts"),
        pytest.param({"clusters": kubeconfig()["clusters"] * 2}, "/clusters", "one_needed", id="two clusters"),
        pytest.param({"users": kubeconfig()["users"] * 2}, "/users", "one_needed", id="two users"),
        pytest.param({"users": None}, "/users", "one_needed", id="no user"),
        pytest.param({"current-context": None}, "/current-context", "required", id="no current context"),
        pytest.param({"current-context": "else"}, "/current-context", "unknown", id="a context that is not there"),
        pytest.param({"contexts": [{"name": "x", "context": {"cluster": "z", "user": "u"}}]},
                     "/contexts/0/context/cluster", "unknown", id="a cluster that is not there"),
        pytest.param({"kind": "List"}, "", "not_a_kubeconfig", id="another kind"),
        pytest.param({"preferences": {"colors": True}}, "/preferences", "not_taken", id="preferences"),
        pytest.param({"secrets": "x"}, "/secrets", "not_taken", id="an unknown member"),
    ],
)  # fmt: skip
def test_t45_a_file_must_say_one_way_to_one_cluster(changes: dict[str, Any], pointer: str, code: str) -> None:
    error = refusal(kubeconfig(**changes))
    assert error.status == 422
    assert pointers(error)[pointer] == code


def test_t45_nothing_hides_in_a_second_entry() -> None:
    hidden = {"name": "v", "user": {"exec": {"command": "id"}}}
    error = refusal(kubeconfig(users=[*kubeconfig()["users"], hidden]))
    assert pointers(error) == {"/users": "one_needed", "/users/1/user/exec": "not_taken"}


def test_t45_a_huge_authority() -> None:
    error = refusal(kubeconfig(cluster={"certificate-authority-data": b64(ca().pem * 8000)}))
    assert error.status == 422
    assert pointers(error) == {f"{CLUSTER}/certificate-authority-data": "too_large"}


def test_t45_a_key_of_somebody_else() -> None:
    pair = {"client-certificate-data": b64(client().pem), "client-key-data": b64(signed(ca(), "other").key)}
    error = refusal(kubeconfig(user={"token": None, **pair}))
    assert pointers(error) == {f"{USER}/client-key-data": "foreign_key"}


def test_t45_a_key_under_a_passphrase() -> None:
    pair = {"client-certificate-data": b64(client().pem), "client-key-data": b64(client().locked_key)}
    error = refusal(kubeconfig(user={"token": None, **pair}))
    assert pointers(error) == {f"{USER}/client-key-data": "encrypted"}


@pytest.mark.parametrize(
    ("part", "field", "value", "code"),
    [
        pytest.param("cluster", "certificate-authority-data", "%%%", "not_base64", id="an authority in no base64"),
        pytest.param("cluster", "certificate-authority-data", b64("hello"), "not_pem", id="an authority in no PEM"),
        pytest.param("cluster", "certificate-authority-data",
                     b64(EMPTY), "not_pem", id="no certificate"),
        pytest.param("cluster", "certificate-authority-data", b64(ca().pem + ca().key), "private_key",
                     id="a key among the authorities"),
        pytest.param("cluster", "certificate-authority-data", b64(ca().pem) + "\u202e", "not_base64", id="disguised"),
        pytest.param("cluster", "tls-server-name", "a b", "invalid", id="a server name with a space"),
        pytest.param("user", "token", "a b", "invalid", id="a token with a space"),
        pytest.param("user", "token", "a\r\nX-Remote-User: admin", "invalid", id="a header inside a token"),
        pytest.param("user", "token", "x" * 9000, "invalid", id="a token without end"),
        pytest.param("user", "token", 17, "wrong_type", id="a number for a token"),
    ],
)  # fmt: skip
def test_t45_malformed_parts(part: str, field: str, value: Any, code: str) -> None:
    error = refusal(kubeconfig(**{part: {field: value}}))
    assert error.status == 422
    assert pointers(error)[f"{CLUSTER if part == 'cluster' else USER}/{field}"] == code


def test_t45_half_a_pair_and_two_credentials() -> None:
    half = refusal(kubeconfig(user={"token": None, "client-certificate-data": b64(client().pem)}))
    assert pointers(half) == {USER: "half_a_pair"}
    pair = {"client-certificate-data": b64(client().pem), "client-key-data": b64(client().key)}
    assert pointers(refusal(kubeconfig(user=pair))) == {USER: "two_credentials"}
    assert pointers(refusal(kubeconfig(user={"token": None}))) == {USER: "required"}


def test_t45_a_credential_that_has_ended() -> None:
    old = signed(ca(), "rung", days=-1)
    pair = {"client-certificate-data": b64(old.pem), "client-key-data": b64(old.key)}
    assert pointers(refusal(kubeconfig(user={"token": None, **pair}))) == {USER: "expired"}
    claims = b64('{"exp": 1000000000}').rstrip("=")
    assert pointers(refusal(kubeconfig(user={"token": f"e30.{claims}.c2ln"}))) == {USER: "expired"}


def test_only_certificates_are_kept_of_what_stands_around_them() -> None:
    noisy = f"# made by somebody\n{ca().pem}\nhello\n{authority('second').pem}"
    kept = read(kubeconfig(cluster={"certificate-authority-data": b64(noisy)})).ca
    assert kept.count("BEGIN CERTIFICATE") == 2
    assert "hello" not in kept


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"a: &a [x]\nb: *a\n", 422, id="aliases"),
        pytest.param(b"apiVersion: v1\napiVersion: v2\n", 422, id="a repeated key"),
        pytest.param(b"a: !!python/object/apply:os.system [id]\n", 422, id="a tag"),
        pytest.param(b"[" * 2000, 422, id="depth"),
        pytest.param(b"{a: 1}\n---\n{b: 2}\n---\n{c: 3}\n", 413, id="several documents"),
        pytest.param(b"a: [", 400, id="no YAML"),
        pytest.param(b"just-a-token", 422, id="a bare text"),
        pytest.param(b"", 422, id="nothing"),
        pytest.param(b"\xff\xfe", 422, id="no UTF-8"),
    ],
)
def test_t25_to_t32_hold_for_kubeconfigs(data: bytes, status: int) -> None:
    assert refusal(data).status == status


def test_t27_a_file_without_end() -> None:
    assert isinstance(refusal(b"#" * (9 * 1024 * 1024)), PayloadTooLarge)


def test_no_refusal_repeats_a_secret() -> None:
    document = kubeconfig(user={"token": f"{TOKEN} {TOKEN}", "client-key-data": TOKEN, "password": TOKEN})
    error = refusal(document)
    assert TOKEN not in f"{error} {[problem.as_json() for problem in error.problems]}"
