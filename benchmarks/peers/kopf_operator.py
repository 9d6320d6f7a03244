"""What a Kopf user would write to keep quotas as they should be. Run by bench_drift with Kopf's own command.

It reads the wanted objects from the file that WANTED names, and holds them in memory.
"""

import json
import os
from pathlib import Path
from typing import Any

import kopf
import kubernetes

DOCUMENTS = [json.loads(each) for each in Path(os.environ["WANTED"]).read_text().split("\n---\n")]
QUOTAS = {
    (each["metadata"]["namespace"], each["metadata"]["name"]): each
    for each in DOCUMENTS
    if each["kind"] == "ResourceQuota"
}


@kopf.on.startup()
def configure(settings: Any, **_: Any) -> None:
    """Its best setting: no events of its own, and threads enough."""
    settings.posting.enabled = False
    settings.execution.max_workers = 8
    kubernetes.config.load_kube_config()


@kopf.on.event("", "v1", "resourcequotas", labels={"app.kubernetes.io/managed-by": "rung"})
def repair(event: Any, body: Any, name: str, namespace: str, **_: Any) -> None:
    """Put back what was edited, recreate what was deleted."""
    wanted = QUOTAS.get((namespace, name))
    if wanted is None:
        return
    api = kubernetes.client.CoreV1Api()
    if event["type"] == "DELETED":
        api.create_namespaced_resource_quota(namespace, wanted)
    elif dict(body["spec"]["hard"]) != wanted["spec"]["hard"]:
        api.patch_namespaced_resource_quota(name, namespace, {"spec": wanted["spec"]})
