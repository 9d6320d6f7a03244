"""Kubeconfigs for tests of how they are read."""

import base64
import json
from functools import cache
from typing import Any

import pytest
from django.utils import timezone

from clusters.connection.rules.kubeconfig import read_kubeconfig
from clusters.ports.connection import Connection
from portal.kit.errors import RungError
from tests.support.certificates import Pair, authority, signed

TOKEN = "canary-4f1c0d6e9b"


@cache
def ca() -> Pair:
    """One authority for the whole run."""
    return authority()


@cache
def client() -> Pair:
    """A client certificate of that authority."""
    return signed(ca(), "rung")


def b64(text: str) -> str:
    """As kubeconfigs hold PEM texts."""
    return base64.b64encode(text.encode()).decode()


def kubeconfig(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    """A good one, with members changed or added; a member that is None is left out."""
    basis = {"server": "https://api.example.org:6443", "certificate-authority-data": b64(ca().pem)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": _with(basis, cluster)}],
        "users": [{"name": "u", "user": _with({"token": TOKEN}, user)}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return _with(document, top)


def _with(basis: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in {**basis, **(changes or {})}.items() if value is not None}


def text(document: dict[str, Any]) -> bytes:
    """As somebody pastes it; JSON is YAML."""
    return json.dumps(document, ensure_ascii=False).encode()


def read(document: dict[str, Any], *, allow_insecure: bool = False) -> Connection:
    """The connection it stands for."""
    return read_kubeconfig(text(document), now=timezone.now(), allow_insecure=allow_insecure)


def refusal(document: dict[str, Any] | bytes) -> RungError:
    """Why it is not taken."""
    data = document if isinstance(document, bytes) else text(document)
    with pytest.raises(RungError) as refused:
        read_kubeconfig(data, now=timezone.now())
    return refused.value


def pointers(error: RungError) -> dict[str, str]:
    """Where it is wrong, and how."""
    return {problem.pointer: problem.code for problem in error.problems}
