"""Gangs of the plain scheduler are there only where the cluster serves them, and used only where an admin says so."""

import pytest

from clusters.connection.services.registration import register_cluster, try_entered
from clusters.inventory.models import Cluster
from clusters.ports.objects import GANG_POD_GROUP, GANG_WORKLOAD, KAI_QUEUE
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tests.clusters.connection.answering import Answering, entered

GANGS = frozenset({GANG_WORKLOAD.key, GANG_POD_GROUP.key})


@pytest.mark.django_db
def test_a_cluster_that_serves_no_gangs_is_refused_and_the_kinds_are_named() -> None:
    with pytest.raises(ValidationFailed) as error:
        register_cluster(name="real", flavour="kube-gangs", source=entered(), actor=SYSTEM, opens=Answering())
    [problem] = error.value.problems
    assert (problem.pointer, problem.code) == ("/flavour", "not_served")
    assert "PodGroup of scheduling.k8s.io/v1alpha2" in problem.message
    assert not Cluster.objects.exists()


@pytest.mark.django_db
def test_one_that_does_is_taken_in() -> None:
    opens = Answering(kinds=GANGS)
    cluster, _ = register_cluster(name="real", flavour="kube-gangs", source=entered(), actor=SYSTEM, opens=opens)
    assert (cluster.flavour, cluster.state) == ("kube-gangs", "active")


@pytest.mark.parametrize(
    ("served", "requested", "fits"),
    [
        pytest.param(GANGS, "kube-gangs", "kube-gangs", id="chosen"),
        pytest.param(GANGS, "kube", "kube", id="not chosen"),
        pytest.param(frozenset(), "kube-gangs", "kube", id="not there"),
        pytest.param(GANGS | {KAI_QUEUE.key}, "kube-gangs", "kai", id="another scheduler beside"),
    ],
)
def test_the_flavour_that_fits(served: frozenset[str], requested: str, fits: str) -> None:
    report = try_entered(entered(), requested, opens=Answering(kinds=served))
    assert report.fitting == fits
    assert report.works is (requested == "kube" or served >= GANGS)
