"""T49: a real cluster is taken in once, changed only by somebody who knows its secret, and left again."""

from collections.abc import Callable

import pytest
from django.db import IntegrityError, transaction

from clusters.connection.models import ClusterCredential
from clusters.connection.services.gateways import connection_of, credential_version
from clusters.connection.services.registration import change_connection, register_cluster
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import pause, unpause
from clusters.ports.gateway import ClusterUnreachable
from clusters.sync.services.disconnect import forget_cluster, references_to
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, RungError, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.clusters.connection.answering import SERVER, Answering, entered
from tests.clusters.connection.kubeconfigs import TOKEN, kubeconfig, text
from tests.factories.clusters import build_cluster
from tests.factories.tenants import ProjectFactory

pytestmark = pytest.mark.django_db


def registered(name: str = "real", cluster: Answering | None = None) -> Cluster:
    return register_cluster(name=name, flavour="kube", source=entered(), actor=SYSTEM, opens=cluster or Answering())[0]


def refusal(act: Callable[[], object]) -> RungError:
    with pytest.raises(RungError) as error:
        act()
    return error.value


def test_a_cluster_is_taken_in_with_its_identity_and_is_due_at_once() -> None:
    cluster = registered()
    assert (cluster.backend, cluster.uid, cluster.version) == ("kubernetes", "uid-1", "v1.36.3")
    assert cluster.sync_due_at is not None
    assert not cluster.is_simulated
    connection = connection_of(cluster)
    assert (connection.server, connection.token) == (SERVER, TOKEN)


def test_a_kubeconfig_serves_as_well() -> None:
    cluster, _report = register_cluster(
        name="real", flavour="kube", source=text(kubeconfig()), actor=SYSTEM, opens=Answering()
    )
    assert connection_of(cluster).token == TOKEN


def test_an_account_without_every_right_begins_paused() -> None:
    weak = Answering(forbidden=frozenset({("resourcequotas", "create")}))
    cluster, report = register_cluster(name="real", flavour="kube", source=entered(), actor=SYSTEM, opens=weak)
    cluster.refresh_from_db()
    assert (cluster.state, report.works) == ("paused", False)
    assert "Its account lacks permissions." in cluster.paused_reason


def test_t49_the_same_cluster_under_another_name_is_refused_with_the_first_ones() -> None:
    registered("first")
    other = entered(server="https://another.example.org:6443")
    error = refusal(
        lambda: register_cluster(name="second", flavour="kube", source=other, actor=SYSTEM, opens=Answering())
    )
    assert (error.status, error.code) == (409, "cluster_known")
    assert "first" in error.message
    assert [each.name for each in Cluster.objects.all()] == ["first"]
    assert AuditRecord.objects.filter(action="cluster.connect", result="Denied").count() == 1


def test_t49_two_writers_of_one_cluster_cannot_be_stored() -> None:
    registered("first")
    with pytest.raises(IntegrityError), transaction.atomic():
        build_cluster(name="second", backend="kubernetes", uid="uid-1")


def test_t49_a_cluster_that_claims_to_be_another_changes_nothing() -> None:
    registered("first")
    second = registered("second", Answering(uid="uid-2"))
    for uid, code in (("uid-1", "cluster_known"), ("uid-3", "another_cluster")):
        error = refusal(
            lambda uid=uid: change_connection(
                cluster=second, source=entered(token="new"), actor=SYSTEM, opens=Answering(uid=uid)
            )
        )
        assert (error.status, error.code) == (409, code)
    assert connection_of(second).token == TOKEN


def test_a_cluster_recreated_is_taken_for_the_old_one_when_that_is_said() -> None:
    registered("first")
    second = registered("second", Answering(uid="uid-2"))
    change_connection(cluster=second, source=entered(), actor=SYSTEM, adopt=True, opens=Answering(uid="uid-3"))
    second.refresh_from_db()
    assert second.uid == "uid-3"
    known = refusal(
        lambda: change_connection(cluster=second, source=entered(), actor=SYSTEM, adopt=True, opens=Answering())
    )
    assert known.code == "cluster_known"
    second.refresh_from_db()
    assert second.uid == "uid-3"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "Not A Name"}, "invalid"),
        ({"flavour": "slurm"}, "unknown"),
        ({"source": entered(server="")}, "required"),
    ],
)
def test_a_refusal_stores_nothing_and_leaves_one_record(changes: dict[str, object], code: str) -> None:
    wanted = {"name": "real", "flavour": "kube", "source": entered(), **changes}
    error = refusal(lambda: register_cluster(**wanted, actor=SYSTEM, opens=Answering()))  # type: ignore[arg-type]
    assert (error.status, error.code) == (422, code)
    assert not Cluster.objects.exists()
    assert AuditRecord.objects.get(action="cluster.connect").result == "Denied"


def test_a_name_that_is_taken() -> None:
    build_cluster(name="real")
    assert refusal(registered).code == "name_taken"


def test_a_cluster_that_does_not_answer_is_not_stored() -> None:
    error = refusal(lambda: registered(cluster=Answering(error=ClusterUnreachable("refused"))))
    assert (error.status, error.code) == (422, "cluster_unreachable")
    assert error.problems[0].pointer == "/server"
    assert not Cluster.objects.exists()


def test_an_account_that_may_not_see_the_identity_is_not_stored() -> None:
    assert refusal(lambda: registered(cluster=Answering(uid=""))).code == "identity_unknown"


def test_the_network_is_never_asked_inside_a_transaction() -> None:
    depths: list[int] = []

    class Watching(Answering):
        def version(self) -> str:
            depths.append(len(transaction.get_connection().savepoint_ids))
            return super().version()

    before = len(transaction.get_connection().savepoint_ids)
    cluster = registered(cluster=Watching())
    change_connection(cluster=cluster, source=entered(token="new"), actor=SYSTEM, opens=Watching())
    assert set(depths) == {before}


def test_a_new_credential_makes_a_new_version_of_the_connection() -> None:
    cluster = registered()
    before = credential_version(cluster)
    change_connection(cluster=cluster, source=entered(token="new"), actor=SYSTEM, opens=Answering())
    assert credential_version(cluster) != before
    assert connection_of(cluster).token == "new"


def test_a_change_that_was_overtaken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = registered()

    class Slow(Answering):
        def identity(self) -> tuple[str, str]:
            ClusterCredential.objects.update(version=7)
            return super().identity()

    error = refusal(lambda: change_connection(cluster=cluster, source=entered(token="new"), actor=SYSTEM, opens=Slow()))
    assert error.code == "changed_meanwhile"


def test_a_cluster_in_use_is_not_forgotten_and_says_by_what() -> None:
    cluster = registered()
    project = ProjectFactory(department__cluster=cluster, cluster=cluster)
    assert any(project.name in each for each in references_to(cluster))
    with pytest.raises(Conflict, match=project.name):
        forget_cluster(cluster=cluster, actor=SYSTEM)
    assert Cluster.objects.filter(pk=cluster.pk).exists()


def test_a_forgotten_cluster_takes_its_credential_along_and_may_come_back() -> None:
    cluster = registered()
    NodePool.objects.create(cluster=cluster, name="default", label_value="x")
    assert references_to(cluster) == []
    assert Cluster.objects.filter(pk=cluster.pk).exists()
    forget_cluster(cluster=cluster, actor=SYSTEM)
    assert not ClusterCredential.objects.exists()
    assert AuditRecord.objects.filter(action="cluster.forget", entity_name="real").exists()
    assert registered().name == "real"


def test_a_paused_cluster_goes_on_when_told() -> None:
    cluster = registered()
    pause(cluster=cluster, reason="a look", actor=SYSTEM)
    unpause(cluster=cluster, actor=SYSTEM)
    cluster.refresh_from_db()
    assert (cluster.state, cluster.paused_reason) == ("active", "")


def test_a_refusal_of_another_kind_is_told_as_it_is() -> None:
    assert isinstance(refusal(lambda: registered(cluster=Answering(error=ClusterUnreachable("x")))), ValidationFailed)
