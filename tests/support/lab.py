"""Real control planes for tests: one for each unit of tests that shares it; nothing of them is left.

Tests that ask for `lab_cluster` or `fresh_lab_cluster` are marked `lab` and may use sockets. Everybody in a unit shares
`lab_cluster`, so a test works in names of its own (`unique`), or asks for a cluster of its own.
"""

import os
import subprocess
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from clusters.connection.rules.rights import manifests_for
from clusters.connection.services.connection_test import try_connection
from clusters.ports.connection import Connection
from tests.support import real
from tests.support.kube import KubeClient
from tests.support.order import unit_of
from tests.support.processes import eventually
from tests.support.repository import ROOT

FIXTURES = {"lab_cluster", "fresh_lab_cluster", "kept"}
NAMESPACE, ACCOUNT = "rung-system", "rung"
POOL = "lab"
NODES = 4
GPUS = 8
GOGC = "300"
"""A test's cluster lives for minutes: its programs may take twice the memory and collect garbage a third as often."""
SECONDS = 300
"""The time limit of a lab test without a limit of its own. It exceeds the default of pyproject.toml, because a test's
limit includes the start of its cluster, beside those of other workers.
"""


@dataclass(frozen=True, slots=True)
class LabCluster:
    """A running cluster: an admin's client, and what Rung is given to reach it, an account with few rights."""

    admin: KubeClient
    kubeconfig: Path
    server: str
    ca: str
    token: str


class Lab:
    """`lab/cluster` with a folder for its clusters."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._env = {**os.environ, "LAB_WORK": str(folder), "LAB_BIN": str(programs), "GOGC": GOGC}

    def run(self, *arguments: str) -> str:
        """One command; answers what it printed."""
        command = [str(ROOT / "lab" / "cluster"), *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, name: str, *options: str) -> Path:
        """Bring up a cluster with scheduler, or find it up; answers its kubeconfig."""
        return Path(self.run("up", name, "--scheduler", *options))

    def end(self, name: str) -> None:
        """Bring a cluster down in a session of its own, so that it completes even if the test runs out of time."""
        command = [str(ROOT / "lab" / "cluster"), "down", name]
        with TemporaryFile("w+") as said:
            process = subprocess.Popen(command, env=self._env, stdout=said, stderr=said, start_new_session=True)
            failed = process.wait()
            said.seek(0)
            assert not failed, said.read()

    @contextmanager
    def starting(self, name: str) -> Iterator[None]:
        """A start that is killed on leaving, once its first process runs."""
        command = [str(ROOT / "lab" / "cluster"), "up", name]
        process = subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: self.processes(name), seconds=30)
            yield
        finally:
            process.kill()
            process.wait()

    def processes(self, name: str) -> dict[int, str]:
        """Every process of the cluster: their programs are started from its folder. Forks are left out."""
        mark = f"{self.folder}/clusters/{name}/bin/".encode()
        found, parents = {}, {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (line := (entry / "cmdline").read_bytes()).startswith(mark):
                    found[int(entry.name)] = line.split(b"\0")[0].decode()
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        return {pid: path for pid, path in found.items() if found.get(parents.get(pid, 0)) != path}


@cache
def programs(*more: str) -> Path:
    """The folder of the built programs, with more than the usual modules. Missing: skip, in CI fail. No test builds."""
    modules = ["etcd", "controlplane", "kwok", *more] if more else []
    done = subprocess.run([ROOT / "lab" / "build", "--where", *modules], capture_output=True, text=True, check=False)
    how = " ".join(["lab/build", *modules])
    return Path(done.stdout.strip()) if done.returncode == 0 else real.unavailable(f"the lab is not built: {how}")


def furnish(kubeconfig: Path, flavour: str = "kube") -> None:
    """Nodes, and the account Rung runs under."""
    admin = KubeClient(kubeconfig)
    for manifest in manifests_for(flavour, namespace=NAMESPACE, account=ACCOUNT):
        admin.apply(manifest, manager="lab")
    admin.gpu_nodes(NODES, GPUS, POOL)
    account = Connection(admin.server, ca=admin.ca, token=admin.token(NAMESPACE, ACCOUNT))
    eventually(lambda: has_rights(account, flavour), seconds=60)
    admin.close()


def has_rights(account: Connection, flavour: str) -> bool:
    """A role that was written counts when the server's authorizer has read it: on a busy machine, seconds later."""
    report = try_connection(account, flavour)
    return not (report.error or report.lacking)


@contextmanager
def reached(kubeconfig: Path) -> Iterator[LabCluster]:
    """A furnished cluster as tests see it."""
    admin = KubeClient(kubeconfig)
    try:
        yield LabCluster(admin, kubeconfig, admin.server, admin.ca, admin.token(NAMESPACE, ACCOUNT))
    finally:
        admin.close()


def _folder() -> Path:
    """Where the clusters of all test runs of this machine are."""
    return Path(os.environ.get("LAB_CACHE", Path.home() / ".cache" / "rung-lab")) / "tests"


def _lab(*more: str) -> Lab:
    _folder().mkdir(parents=True, exist_ok=True)
    return Lab(_folder(), programs(*more))


def _sweep(lab: Lab) -> None:
    """End the clusters that killed test runs left: the name of a cluster holds the process ID of its run."""
    for name in {file.name.partition(".")[0] for file in lab.folder.glob("*-*.yaml*")}:
        if not Path(f"/proc/{name.split('-')[1]}").exists():
            lab.end(name)


@contextmanager
def own_cluster(*options: str, flavour: str = "kube") -> Iterator[LabCluster]:
    """A furnished cluster, gone afterwards: with these options of `lab/cluster up`."""
    lab = _lab(*(["kueue"] if "--kueue" in options else []))
    name = f"own-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _sweep(lab)
    try:
        kubeconfig = lab.start(name, *options)
        furnish(kubeconfig, flavour)
        with reached(kubeconfig) as cluster:
            yield cluster
    finally:
        lab.end(name)


def program_of(cluster: LabCluster, command: str, program: str) -> None:
    """`lab/cluster stop`, `start` or `restart` one program of a cluster."""
    _lab().run(command, cluster.kubeconfig.stem, program)


class Kept:
    """Clusters that one unit of tests shares. They end with it: one that idles on takes a part of a core."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._found: dict[Callable[[], AbstractContextManager[LabCluster]], LabCluster] = {}

    def cluster(self, start: Callable[[], AbstractContextManager[LabCluster]]) -> LabCluster:
        """The one that this function starts, or has started."""
        if start not in self._found:
            self._found[start] = self._stack.enter_context(start())
        return self._found[start]

    def end(self) -> None:
        """End them all."""
        self._found.clear()
        self._stack.close()


KEPT = pytest.StashKey[Kept]()


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Kept:
    """The clusters of the unit that the test is of."""
    return request.config.stash.setdefault(KEPT, Kept())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """After the last test of a unit its clusters end."""
    yield
    if KEPT in item.config.stash and (nextitem is None or unit_of(nextitem.nodeid) != unit_of(item.nodeid)):
        item.config.stash[KEPT].end()


@pytest.fixture
def lab_cluster(kept: Kept) -> LabCluster:
    """A control plane with scheduler, controllers, and four nodes of eight GPUs in the pool lab."""
    return kept.cluster(own_cluster)


@pytest.fixture
def fresh_lab_cluster() -> Iterator[LabCluster]:
    """A cluster that only this test sees."""
    with own_cluster() as cluster:
        yield cluster


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names of this test's own: the cluster is everybody's."""
    mark = uuid.uuid4().hex[:8]
    return lambda name: f"{name}-{mark}"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark tests that use a cluster and let them open sockets; give lab tests without a limit more time."""
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.enable_socket)
    yield
    for item in items:
        if item.get_closest_marker("lab") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))
