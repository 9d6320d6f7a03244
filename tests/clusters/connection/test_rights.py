"""The rights Rung asks for: what it uses, nothing that hands on power, and a real API server holds it to them."""

from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command
from django.utils import timezone

from clusters.connection.rules.kubeconfig import read_kubeconfig
from clusters.connection.rules.rights import as_yaml, manifests_for, optional_access, required_access
from clusters.connection.services.connection_test import try_connection
from clusters.connection.services.gateways import gateway_to
from clusters.flavours.registry import FLAVOURS
from clusters.ports.connection import Connection
from clusters.ports.gateway import ClusterError, ClusterGateway, Kind, Manifest, NotAuthorized, ObjectRef
from clusters.ports.objects import EVENT, MANAGED_BY, MANAGER, NAMESPACE, NODE, POD, WORKLOAD_KINDS
from tests.clusters.connection.kubeconfigs import b64, text
from tests.support.lab import LabCluster

POWERS = {"secrets", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts", "serviceaccounts/token",
          "roles", "rolebindings", "clusterroles", "clusterrolebindings", "nodes/proxy", "pods/ephemeralcontainers",
          "customresourcedefinitions", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"}  # fmt: skip
READ = {"get", "list", "watch"}
WRITE = READ | {"create", "update", "delete"}
SECRET = Kind("", "v1", "Secret", "secrets")


def rules(flavour: str) -> list[dict[str, list[str]]]:
    [role] = [each for each in manifests_for(flavour) if each["kind"] == "ClusterRole"]
    found: list[dict[str, list[str]]] = role["rules"]
    return found


def granted(flavour: str) -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules(flavour)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_nothing_hands_on_power(flavour: str) -> None:
    for rule in rules(flavour):
        assert not POWERS & set(rule["resources"])
        assert not {"*", "impersonate", "escalate", "bind", "deletecollection"} & set(rule["verbs"])
        assert "*" not in rule["apiGroups"] + rule["resources"]
        assert "nonResourceURLs" not in rule


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_every_call_of_the_gateway_is_covered(flavour: str) -> None:
    may = granted(flavour)
    for kind in (*FLAVOURS[flavour].kinds(), *WORKLOAD_KINDS):
        assert may[kind.group, kind.plural] == WRITE, kind
    for kind in (NODE, EVENT):
        assert may[kind.group, kind.plural] == READ, kind
    assert may["", "pods/log"] == {"get"}


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_what_is_tested_is_what_is_granted(flavour: str) -> None:
    wanted: dict[tuple[str, str], set[str]] = {}
    for access in (*required_access(flavour), *optional_access(flavour)):
        wanted.setdefault((access.group, access.path), set()).update(access.verbs)
    assert wanted == granted(flavour)
    assert all(access.why for access in required_access(flavour))


def test_disruption_budgets_are_read_where_they_may_be_and_never_required() -> None:
    for flavour in ("kube", "kube-gangs"):
        assert granted(flavour)["policy", "poddisruptionbudgets"] == {"list"}
        assert not any(access.resource == "poddisruptionbudgets" for access in required_access(flavour))
    assert ("policy", "poddisruptionbudgets") not in granted("kai")


def test_the_command_prints_what_kubectl_takes() -> None:
    said = StringIO()
    call_command("cluster_rbac", "--flavour", "kai", "--namespace", "portal", "--account", "gpu", stdout=said)
    documents = list(yaml.safe_load_all(said.getvalue()))
    assert [each["kind"] for each in documents] == ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    assert documents[3]["subjects"] == [{"kind": "ServiceAccount", "name": "gpu", "namespace": "portal"}]
    assert "kubectl -n portal create token gpu" in said.getvalue()
    assert all(MANAGED_BY not in each["metadata"]["labels"] for each in documents)


def test_the_command_prints_the_rights_for_both_while_a_cluster_goes_from_one_to_the_other() -> None:
    said = StringIO()
    call_command("cluster_rbac", "--flavour", "kueue", "--beside", "kube", stdout=said)
    assert said.getvalue() == as_yaml("kueue", beside="kube")
    assert "With those for kube" in said.getvalue()
    resources = {name for rule in list(yaml.safe_load_all(said.getvalue()))[2]["rules"] for name in rule["resources"]}
    assert {"clusterqueues", "resourcequotas"} <= resources


def test_the_guard_comes_only_when_it_is_asked_for() -> None:
    said = StringIO()
    call_command("cluster_rbac", "--guard", "--account", "gpu", stdout=said)
    documents = list(yaml.safe_load_all(said.getvalue()))
    assert [each["kind"] for each in documents[4:]] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert "system:serviceaccount:rung-system:gpu" in said.getvalue()


def test_the_text_is_the_same_every_time() -> None:
    assert as_yaml("kube") == as_yaml("kube")


@pytest.fixture
def gateway(lab_cluster: LabCluster) -> Iterator[ClusterGateway]:
    """A real API server, as the account Rung asks for."""
    gateway = gateway_to(connection_to(lab_cluster), name="lab")
    yield gateway
    gateway.close()


def connection_to(cluster: LabCluster) -> Connection:
    return Connection(cluster.server, ca=cluster.ca, token=cluster.token)


def test_a_real_server_finds_every_right_and_no_other(lab_cluster: LabCluster) -> None:
    report = try_connection(connection_to(lab_cluster), "kube")
    assert report.lacking == ()
    assert report.excess == ()
    assert report.works
    assert report.username == "system:serviceaccount:rung-system:rung"
    assert report.version.startswith("v1.")


def test_a_real_server_names_what_another_account_lacks(lab_cluster: LabCluster, unique: Callable[[str], str]) -> None:
    space = unique("weak")
    lab_cluster.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "weak", "namespace": space}}
    lab_cluster.admin.create(account)
    token = lab_cluster.admin.token(space, "weak")
    report = try_connection(Connection(lab_cluster.server, ca=lab_cluster.ca, token=token), "kube")
    assert (report.error, report.uid) == ("", "")
    assert report.version.startswith("v1.")
    assert len(report.lacking) == len(required_access("kube"))


def test_a_real_server_finds_that_an_admin_may_too_much(lab_cluster: LabCluster) -> None:
    config = yaml.safe_load(lab_cluster.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    for part, name in ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key")):
        part[f"{name}-data"] = b64(Path(part.pop(name)).read_text())
    report = try_connection(read_kubeconfig(text(config), now=timezone.now()), "kube")
    assert report.works
    assert len(report.excess) == 4


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda gateway: gateway.list(SECRET, managed_only=False), id="read secrets"),
        pytest.param(lambda gateway: gateway.get(ObjectRef(SECRET, "a", "kube-system")), id="read a secret"),
        pytest.param(lambda gateway: gateway.delete(ObjectRef(NODE, "node-1")), id="delete a node"),
        pytest.param(
            lambda gateway: gateway.delete(ObjectRef(EVENT, "a", "default")),
            id="delete an event",
        ),
    ],
)
def test_a_real_server_refuses_what_is_not_in_it(
    gateway: ClusterGateway, act: Callable[[ClusterGateway], object]
) -> None:
    with pytest.raises(NotAuthorized):
        act(gateway)


def test_a_real_server_lets_rung_do_its_work(gateway: ClusterGateway, unique: Callable[[str], str]) -> None:
    name = unique("rights")
    labels = {MANAGED_BY: MANAGER}
    space = gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    defaults: Manifest = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "d", "namespace": name, "labels": labels},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
    }
    made = gateway.create(defaults)
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}}]
    changed = gateway.update({**defaults, "spec": {"limits": limits}}, observed=made)
    assert changed["spec"]["limits"][0]["defaultRequest"] == {"cpu": "2"}
    assert gateway.list(POD, namespace=name)[0] == []
    with pytest.raises(ClusterError):
        gateway.logs(ObjectRef(POD, "absent", name))
    gateway.delete(ObjectRef(NAMESPACE, name), uid=space["metadata"]["uid"])
