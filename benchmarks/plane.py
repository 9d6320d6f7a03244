"""A real etcd and kube-apiserver on loopback, and nothing else: no controller, no scheduler, no node. Gone afterwards.

The programs are those of `lab/build`. Commits are durable, as in production. One token belongs to `system:masters`;
both sides of a comparison use it.
"""

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks.raw import Api
from tests.support.real import free_port
from tests.support.repository import ROOT

TOKEN = "only-for-benchmarks"
_LISTS: Final = (
    "jsonpath={range .items[*]}/apis/{.spec.group}/{.spec.versions[?(@.storage==true)].name}/{.spec.names.plural} {end}"
)
"""The path of every new kind's list."""


@dataclass(frozen=True, slots=True)
class Plane:
    """An API server that answers: where, whom to trust, and a kubeconfig for other programs."""

    port: int
    ca: str
    kubeconfig: Path
    programs: Path

    @property
    def kubectl(self) -> list[str]:
        """The beginning of a command."""
        return [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig)]

    def learn(self, flavour: str) -> None:
        """Make the API server know the kinds of a scheduler that is none of Kubernetes' own: Kueue's are its own."""
        crds = ROOT / "lab" / "crds" / "schedulers" / f"{flavour}.yaml"
        if flavour == "kueue":
            crds = _programs("kueue") / "kueue.d" / "crds"
        if crds.exists():
            for command in (
                ["apply", "--server-side", "-f", str(crds)],
                ["wait", "--for=condition=established", "crd", "--all"],
            ):
                subprocess.run([*self.kubectl, *command], stdout=subprocess.DEVNULL, check=True)
            self._wait_for_lists()

    def _wait_for_lists(self) -> None:
        """A kind that is established may still answer 429 while its storage starts."""
        command = [*self.kubectl, "get", "crd", "-o", _LISTS]
        paths = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        api = self.api()
        for path in paths:
            for _ in range(600):
                if api.ask("GET", path)[0] == 200:
                    break
                time.sleep(0.1)
            else:
                raise TimeoutError(f"{path} does not answer")

    def api(self) -> Api:
        """A connection of its own."""
        return Api(self.port, self.ca, TOKEN)


@contextmanager
def plane() -> Iterator[Plane]:
    """Start, wait until it is ready, stop: the API server before etcd."""
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="rung-plane-") as name, ExitStack() as stack:
        folder = Path(name)
        log = stack.enter_context((folder / "log").open("wb"))
        store, peer, port = free_port(), free_port(), free_port()
        stack.enter_context(_running(_etcd(programs, folder, store, peer), log))
        stack.enter_context(_running(_apiserver(programs, folder, store, port), log))
        found = Plane(port, _ca(folder), folder / "kubeconfig", programs)
        found.kubeconfig.write_text(json.dumps(_kubeconfig(found)))
        _wait_for(found)
        yield found


def _programs(*more: str) -> Path:
    """Where `lab/build` keeps what it has built."""
    modules = ("etcd", "controlplane", "kwok", *more)
    command = [ROOT / "lab" / "build", "--where", *modules]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def _etcd(programs: Path, folder: Path, port: int, peer: int) -> list[str]:
    here, others = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    return [
        str(programs / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls={others}",
        f"--initial-advertise-peer-urls={others}",
        f"--initial-cluster=default={others}",
        "--log-level=error",
    ]


def _apiserver(programs: Path, folder: Path, store: int, port: int) -> list[str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "tokens").write_text(f'{TOKEN},bench,bench,"system:masters"\n')
    return [
        str(programs / "kube-apiserver"),
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--etcd-servers=http://127.0.0.1:{store}",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens'}",
        f"--service-account-key-file={folder / 'key'}",
        f"--service-account-signing-key-file={folder / 'key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
    ]


@contextmanager
def _running(command: Sequence[str], log: IO[bytes]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]})
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _ca(folder: Path) -> str:
    """The server signs for itself; the last certificate of its file is the authority."""
    file = folder / "certs" / "apiserver.crt"
    for _ in range(300):
        if file.is_file() and (text := file.read_text()).strip().endswith("-----END CERTIFICATE-----"):
            return text
        time.sleep(0.1)
    raise TimeoutError(f"no certificate: {(folder / 'log').read_text()[-2000:]}")


def _kubeconfig(found: Plane) -> dict[str, object]:
    cluster = {
        "server": f"https://127.0.0.1:{found.port}",
        "certificate-authority-data": base64.b64encode(found.ca.encode()).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": TOKEN}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


def _wait_for(found: Plane) -> None:
    """Ready, and its own namespaces are there."""
    for _ in range(600):
        try:
            api = found.api()
            if api.ask("GET", "/readyz")[0] == 200 and api.ask("GET", "/api/v1/namespaces/kube-system")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the API server does not become ready")
