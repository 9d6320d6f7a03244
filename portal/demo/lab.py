"""`make demo RUNG_LAB=1`: a real control plane with fake GPU nodes beside the simulated cluster."""

import os
import subprocess
import sys
from pathlib import Path

from portal.demo.supervisor import Child, end_with_parent

NAME = "demo"
POOLS = {"h100": 4, "a100": 2}
GPUS = 8
GRACE_SECONDS = 25.0
"""It ends its programs one after another; killed before that, it would leave the rest running."""


class DemoLab:
    """`lab/cluster` with the demo's data folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self.kubeconfig = folder / "lab" / "rung.kubeconfig"
        os.environ["LAB_WORK"] = str(folder / "lab")
        os.environ.setdefault("RUNG_CLUSTER_ADDRESSES", "127.0.0.0/8")

    def start(self) -> bool:
        """Build the programs if need be, bring the cluster up, make its account; False if that failed."""
        os.environ["LAB_BIN"] = self._answer("lab/build")
        up = bool(os.environ["LAB_BIN"]) and self._run("lab/cluster", "up", NAME, "--scheduler")
        return up and self._run("lab/cluster", "kinds", NAME) and self._nodes() and self._account()

    def child(self) -> Child:
        """The process that stays with the cluster and ends it, also when the demo is killed."""
        return Child("lab", (str(self.root / "lab" / "cluster"), "run", NAME, "--scheduler"), grace=GRACE_SECONDS)

    def _nodes(self) -> bool:
        done = [
            self._run("lab/cluster", "gpu-nodes", NAME, str(count), str(GPUS), pool) for pool, count in POOLS.items()
        ]
        return all(done)

    def _account(self) -> bool:
        """A kubeconfig of Rung's own account, readable by this user only."""
        manifests = self._answer(sys.executable, "manage.py", "cluster_rbac", "--flavour", "kube")
        config = self._answer("lab/cluster", "account", NAME, given=manifests)
        self.kubeconfig.unlink(missing_ok=True)
        with os.fdopen(os.open(self.kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(config)
        return bool(config)

    def _run(self, program: str, *arguments: str) -> bool:
        command = [str(self.root / program), *arguments]
        done = subprocess.run(
            command, cwd=self.root, stdout=subprocess.DEVNULL, check=False, preexec_fn=end_with_parent
        )
        return done.returncode == 0

    def _answer(self, program: str, *arguments: str, given: str = "") -> str:
        """What a program printed; empty if it failed."""
        command = [str(self.root / program), *arguments]
        done = subprocess.run(
            command,
            cwd=self.root,
            input=given,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=end_with_parent,
        )
        return done.stdout.strip() if done.returncode == 0 else ""
