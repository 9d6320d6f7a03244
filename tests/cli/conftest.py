"""The real command in this process, against a real server over sockets, with a home of its own."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portal.kit.security.actors import SYSTEM
from rung_cli.main import run
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.organisation.models import Project

HERE = Path(__file__).parent
VARIABLES = ("URL", "CLIENT_ID", "CLIENT_SECRET", "PROFILE", "PROJECT", "CA_FILE")
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{name: main, image: docker.io/a/b:1, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}
"""


def job(name: str, gpus: int = 1) -> str:
    """A manifest."""
    return JOB.format(name=name, gpus=gpus)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder may ask over sockets."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.enable_socket)
            if "live_server" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.django_db(transaction=True))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out)


Rung = Callable[..., Ended]


class Typed(io.TextIOWrapper):
    """Stdin that holds a text; on request it looks like a terminal."""

    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command keeps its files; nothing of this machine's environment reaches it."""
    for name in VARIABLES:
        monkeypatch.delenv(f"RUNG_{name}", raising=False)
    folder = tmp_path / "config"
    monkeypatch.setenv("RUNG_CONFIG", str(folder))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    return folder


@pytest.fixture
def rung(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rung:
    """Runs the command: `rung("list", "-o", "json")`."""

    def ran(*args: str, stdin: str = "", terminal: bool = False) -> Ended:
        capsys.readouterr()
        monkeypatch.setattr("sys.stdin", Typed(stdin, terminal=terminal))
        code = run([str(each) for each in args])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return ran


@dataclass(frozen=True)
class Account:
    """A service account's credentials."""

    client_id: str
    secret: str


def account_of(name: str, role: str, **scope: Any) -> Account:
    """A new one."""
    account, secret = subjects.create_service_account(name=name, actor=SYSTEM, role=role, **scope)
    return Account(account.client_id, secret)


@pytest.fixture
def member(live_server: Any, llm_team: Project) -> Account:
    """May work in llm-team."""
    return account_of("pipeline", Role.MEMBER, project=llm_team)


@pytest.fixture
def signed_in(live_server: Any, member: Account, rung: Rung, monkeypatch: pytest.MonkeyPatch) -> Rung:
    """The command as a pipeline has it: everything in the environment."""
    monkeypatch.setenv("RUNG_URL", live_server.url)
    monkeypatch.setenv("RUNG_CLIENT_ID", member.client_id)
    monkeypatch.setenv("RUNG_CLIENT_SECRET", member.secret)
    monkeypatch.setenv("RUNG_PROJECT", "llm-team")
    return rung


@pytest.fixture
def admin(
    live_server: Any, llm_team: Project, vision_team: Project, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> Rung:
    """The command of a platform admin, as a pipeline has it."""
    account = account_of("gitops", Role.PLATFORM_ADMIN)
    told = {"URL": live_server.url, "CLIENT_ID": account.client_id, "CLIENT_SECRET": account.secret}
    for name, value in told.items():
        monkeypatch.setenv(f"RUNG_{name}", value)
    return rung
