"""I2: a tenant's client hears no answer while the API server is away, and asks again with the same key."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection

from clusters.ports.gateway import Manifest
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.factories.workloads import job
from tests.faults.rig import PATIENCE, SEEDS, Rig
from tests.support.processes import eventually
from workloads.state.models import Workload

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("seed", SEEDS)]


def train() -> Manifest:
    """A job whose image may be used."""
    manifest = job()
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "ghcr.io/team/train:1"
    return manifest


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def handle(self) -> None:
        """One request; the database connection is this thread's own."""
        try:
            super().handle()
        except OSError:
            pass  # the client has gone
        finally:
            connection.close()


@contextmanager
def portal() -> Iterator[int]:
    """The portal behind a real socket; yields its port."""
    with make_server("127.0.0.1", 0, WSGIHandler(), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Caller:
    """A robot whose every submission has the same key and the same body."""

    def __init__(self, port: int, project: Project) -> None:
        name = f"robot-{project.pk}"
        _, secret = subjects.create_service_account(name=name, actor=SYSTEM, role=Role.PLATFORM_ADMIN)
        self.port = port
        self.body = json.dumps({"metadata": {"projectId": str(project.pk), "priority": "low"}, "manifest": train()})
        self.headers = {
            "Authorization": f"Bearer {exchange(name, secret).text}",
            "Content-Type": "application/json",
            "Host": "testserver",
            "Idempotency-Key": "once",
        }

    def gives_up(self, after: int) -> None:
        """Send so many bytes of the body, then wait for no answer."""
        lines = ["POST /api/v2/workloads HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items())]
        head = "\r\n".join([*lines, f"Content-Length: {len(self.body)}", "\r\n"])
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall((head + self.body[:after]).encode())

    def asks(self) -> str:
        """Send it and read the answer: the workload's id."""
        client = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        client.request("POST", "/api/v2/workloads", self.body, self.headers)
        answer = client.getresponse()
        said = json.loads(answer.read())
        assert answer.status == 202, said
        client.close()
        return str(said["metadata"]["id"])


@pytest.mark.parametrize("heard", ["whole", "half"])
def test_i2_a_submission_whose_answer_was_lost_is_made_once(rig: Rig, heard: str) -> None:
    project = rig.grant(rig.project("train"), 4)
    rig.reconcile()
    (rig.proxy.go_down if rig.random.random() < 0.5 else rig.proxy.go_deaf)()
    with portal() as port:
        caller = Caller(port, project)
        length = len(caller.body)
        caller.gives_up(length if heard == "whole" else rig.random.randint(0, length - 1))
        if heard == "whole":
            eventually(Workload.objects.exists, seconds=PATIENCE)
            rig.work()
        found = {caller.asks() for _ in range(rig.random.randint(2, 4))}
    (workload,) = Workload.objects.all()
    assert found == {str(workload.pk)}
    rig.settle()
    assert len(created(rig)) == 1


def created(rig: Rig) -> list[str]:
    """Jobs that the API server holds in the rig's namespaces, by name."""
    kind = rig.admin.ref({**train(), "metadata": {"name": "any", "namespace": "any"}}).kind
    return [each["metadata"]["name"] for each in rig.admin.list(kind) if rig.mark in each["metadata"]["namespace"]]
