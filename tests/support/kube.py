"""A tiny admin's client of an API server: what tests put into a cluster and read back, past the product."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml

from clusters.ports.gateway import Kind, Manifest, ObjectRef

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"


class KubeError(AssertionError):
    """The API server said no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class KubeClient:
    """Speaks to one API server as whoever the kubeconfig or the token says."""

    def __init__(self, kubeconfig: Path, *, token: str = "") -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        self.ca = Path(cluster["certificate-authority"]).read_text()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        files = {} if token else {"cert_file": user["client-certificate"], "key_file": user["client-key"]}
        self._pool = urllib3.PoolManager(
            ca_certs=cluster["certificate-authority"], retries=False, timeout=30, maxsize=8, **files
        )
        self._resources: dict[tuple[str, str], Kind] = {}

    def close(self) -> None:
        """Let go of every connection."""
        self._pool.clear()

    def call(self, method: str, path: str, body: Any = None, content: str = JSON) -> Any:
        """One request; the answer as JSON, or as text where it is none. KubeError: anything but 2xx."""
        headers = {**self._headers, "Accept": JSON, "Content-Type": content}
        data = None if body is None else json.dumps(body).encode()
        answer = self._pool.request(method, f"{self.server}{path}", body=data, headers=headers)
        text = answer.data.decode()
        found = json.loads(text) if answer.headers.get("Content-Type", "").startswith(JSON) else text
        if answer.status >= 400:
            said: Mapping[str, Any] = found if isinstance(found, dict) else {"message": text}
            raise KubeError(answer.status, str(said.get("reason", "")), str(said.get("message", "")))
        return found

    def get(self, ref: ObjectRef) -> Manifest | None:
        """The object, or None."""
        try:
            found: Manifest = self.call("GET", self.path(ref.kind, ref.namespace, ref.name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return found

    def must(self, ref: ObjectRef) -> Manifest:
        """The object, which is there."""
        found = self.get(ref)
        assert found is not None, f"{ref.kind.kind} {ref.namespace}/{ref.name} is not there"
        return found

    def list(self, kind: Kind, *, namespace: str = "", labels: str = "") -> list[Manifest]:
        """Every object of the kind."""
        query = f"?{urlencode({'labelSelector': labels})}" if labels else ""
        found = self.call("GET", self.path(kind, namespace) + query)["items"]
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **each} for each in found]

    def create(self, manifest: Manifest) -> Manifest:
        """Create it."""
        created: Manifest = self.call("POST", self._home(manifest), manifest)
        return created

    def apply(self, manifest: Manifest, *, manager: str = "somebody-else") -> Manifest:
        """Server-side apply by a manager who insists."""
        query = urlencode({"fieldManager": manager, "force": "true"})
        path = f"{self._home(manifest)}/{manifest['metadata']['name']}?{query}"
        applied: Manifest = self.call("PATCH", path, manifest, APPLY)
        return applied

    def patch(self, ref: ObjectRef, body: Mapping[str, Any], *, subresource: str = "") -> Manifest:
        """Merge patch."""
        path = self.path(ref.kind, ref.namespace, ref.name) + (f"/{subresource}" if subresource else "")
        patched: Manifest = self.call("PATCH", path, body, MERGE)
        return patched

    def patch_status(self, ref: ObjectRef, status: Mapping[str, Any]) -> Manifest:
        """Merge patch of the status."""
        return self.patch(ref, {"status": status}, subresource="status")

    def delete(self, ref: ObjectRef, *, grace: int | None = None) -> None:
        """Delete it and what it owns, as kubectl does; gone already is fine."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        options |= {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.call("DELETE", self.path(ref.kind, ref.namespace, ref.name), options)
        except KubeError as error:
            if error.status != 404:
                raise

    def logs(self, ref: ObjectRef, **query: str) -> str:
        """What a pod wrote."""
        return str(self.call("GET", f"{self.path(ref.kind, ref.namespace, ref.name)}/log?{urlencode(query)}"))

    def wait_until(
        self, ref: ObjectRef, condition: Callable[[Manifest], object] = bool, *, seconds: float = 20
    ) -> Manifest:
        """The object, as soon as it is there and the condition holds of it."""
        for found in self._looks(ref, seconds):
            if found is not None and condition(found):
                return found
        raise AssertionError(f"not within {seconds} s: {json.dumps(self.get(ref), indent=1)}")

    def wait_gone(self, ref: ObjectRef, *, seconds: float = 20) -> None:
        """Return as soon as it is not there."""
        for found in self._looks(ref, seconds):
            if found is None:
                return
        raise AssertionError(f"{ref.kind.kind} {ref.name} is still there after {seconds} s")

    def namespace(self, name: str, **labels: str) -> str:
        """A namespace that takes pods: its default account is there."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self.wait_until(ObjectRef(self._resource("v1", "ServiceAccount"), "default", name))
        return name

    def gpu_nodes(self, count: int, gpus: int, pool: str = "default") -> Sequence[str]:
        """Fake nodes of a pool, numbered from 1; answers their names."""
        size = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
        names = [f"{pool}-{number}" for number in range(1, count + 1)]
        for name in names:
            labels = {"type": "kwok", "kubernetes.io/hostname": name, "rung.dev/node-pool": pool}
            labels |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": str(gpus)}
            metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
            status = {"capacity": size, "allocatable": size}
            self.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
        return names

    def token(self, namespace: str, account: str) -> str:
        """A fresh token of a service account."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.call("POST", path, request)["status"]["token"])

    def path(self, kind: Kind, namespace: str = "", name: str = "") -> str:
        """Where the API server keeps objects of the kind."""
        parts = ["/apis" if kind.group else "/api", kind.api_version]
        parts += ["namespaces", namespace] if namespace and kind.namespaced else []
        return "/".join([*parts, kind.plural, *([name] if name else [])])

    def ref(self, manifest: Manifest) -> ObjectRef:
        """Names the object of a manifest, whatever its kind."""
        kind, metadata = self._resource(manifest["apiVersion"], manifest["kind"]), manifest["metadata"]
        return ObjectRef(kind, metadata["name"], metadata.get("namespace", "") if kind.namespaced else "")

    def _home(self, manifest: Manifest) -> str:
        ref = self.ref(manifest)
        return self.path(ref.kind, ref.namespace)

    def _resource(self, api_version: str, kind: str) -> Kind:
        if (api_version, kind) not in self._resources:
            self._resources |= {(api_version, each.kind): each for each in self._served(api_version)}
        return self._resources[api_version, kind]

    def _served(self, api_version: str) -> Sequence[Kind]:
        group, _, version = api_version.rpartition("/")
        found = self.call("GET", f"/{'apis' if group else 'api'}/{api_version}")["resources"]
        own = [each for each in found if "/" not in each["name"]]
        return [Kind(group, version, each["kind"], each["name"], namespaced=each["namespaced"]) for each in own]

    def _looks(self, ref: ObjectRef, seconds: float) -> Iterator[Manifest | None]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield self.get(ref)
            time.sleep(0.1)
