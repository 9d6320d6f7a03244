"""Mail about workloads: once per event, only to who may see them, whatever the mail server does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from portal.kit.errors import Forbidden, NotFound
from portal.kit.security.actors import SYSTEM, Actor, CredentialLimits
from tenants.access.models import Membership, Role, User
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory
from tests.factories.workloads import WorkloadFactory
from tests.support.mail import MailServer, mail_server
from tests.workloads.notifications.mail_config import config
from workloads.notifications.models import Delivery, DeliveryState, NotificationChannel, Subscription
from workloads.notifications.rules import EVICTION, LIMITS, STATUS
from workloads.notifications.services import channels, delivery
from workloads.notifications.services import mail as mailing
from workloads.notifications.tasks import notify
from workloads.state.models import EventType, Workload
from workloads.state.services import note, place_events

pytestmark = pytest.mark.enable_socket
EVENTS = [
    {"category": STATUS, "types": ["Running", "Failed"]},
    {"category": EVICTION, "types": ["Preempted"]},
    {"category": LIMITS, "types": ["TimeLimitNear"]},
]


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
def channel(db: None, server: MailServer) -> NotificationChannel:
    """On, by the server."""
    channels.set_state(actor=SYSTEM, enabled=True)
    return channels.add_channel(name="", type_="email", config=config(server.port), actor=SYSTEM)


@pytest.fixture
def carol(llm_team: Project) -> User:
    """A member of llm-team with a mail address."""
    return mailed("carol", llm_team)


def mailed(name: str, project: Project) -> User:
    found: User = MembershipFactory(
        user__username=name, user__email=f"{name}@example.org", role=Role.MEMBER, project=project
    ).user
    return found


@pytest.fixture
def wish(channel: NotificationChannel, carol: User) -> Subscription:
    return channels.subscribe(events=EVENTS, names=["email"], actor=acting(carol))


@pytest.fixture
def training(llm_team: Project) -> Workload:
    found: Workload = WorkloadFactory(project=llm_team, name="bert", phase="Running")
    return found


def happens(workload: Workload, phase: str = "Running", reason: str = "", message: str = "It runs now.") -> None:
    workload.phase = phase
    note(workload=workload, at=timezone.now(), type_=EventType.PHASE, reason=reason, message=message)


def configured(**change: Any) -> None:
    row = channels.channel_named(name="email", actor=SYSTEM)
    channels.change_channel(row=row, type_="email", config=change, actor=SYSTEM, merge=True)


def turn(later: int = 0) -> None:
    delivery.collect()
    delivery.deliver(timezone.now() + timedelta(seconds=later))


def test_a_subscriber_is_mailed_what_they_wanted_once(
    server: MailServer, wish: Subscription, training: Workload
) -> None:
    happens(training)
    happens(training, "Completed")
    for _ in range(3):
        turn(later=7200)
    (mail,) = server.arrived
    assert mail["To"] == "carol@example.org"
    assert mail["From"] == "Rung <rung@example.org>"
    assert mail["Subject"] == "Run:ai notification - Workload status change Running"
    text = mail.get_content()
    assert "Workload bert in project llm-team: Running" in text
    assert "It runs now." in text
    assert Delivery.objects.get().state == DeliveryState.SENT


@pytest.mark.parametrize(
    ("type_", "reason", "said"),
    [(EventType.PREEMPTION, "Reclaimed", "Preempted"), (EventType.ACTION, "TimeLimitNear", "TimeLimitNear")],
)
def test_evictions_and_near_ends_are_told(
    server: MailServer, wish: Subscription, training: Workload, type_: EventType, reason: str, said: str
) -> None:
    note(workload=training, at=timezone.now(), type_=type_, reason=reason, message="m")
    note(workload=training, at=timezone.now(), type_=EventType.ACTION, reason="Something else", message="m")
    turn()
    assert [mail["Subject"].rpartition(" ")[2] for mail in server.arrived] == [said]


def test_what_happened_before_the_wish_or_while_it_was_off_is_never_told(
    server: MailServer, channel: NotificationChannel, carol: User, training: Workload
) -> None:
    happens(training)
    channels.subscribe(events=EVENTS, names=["email"], actor=acting(carol))
    channels.set_state(actor=SYSTEM, enabled=False)
    happens(training, "Failed")
    turn()
    channels.set_state(actor=SYSTEM, enabled=True)
    turn()
    assert server.arrived == []
    happens(training)
    turn()
    assert len(server.arrived) == 1


def test_an_entry_that_commits_late_is_not_lost(server: MailServer, wish: Subscription, training: Workload) -> None:
    """Its key is lower than that of an entry that has been read."""
    happens(training)
    late = training.timeline.latest("pk")
    number, late.pk = late.pk, None
    training.timeline.all().delete()
    happens(training, "Failed")
    turn()
    late.pk = number
    late.save(force_insert=True)
    turn()
    assert [mail["Subject"].rpartition(" ")[2] for mail in server.arrived] == ["Failed", "Running"]


def test_who_lost_their_rights_is_told_nothing_not_even_what_waits(
    server: MailServer, wish: Subscription, carol: User, training: Workload
) -> None:
    happens(training)
    delivery.collect()
    Membership.objects.filter(user=carol).delete()
    delivery.deliver()
    happens(training, "Failed")
    turn()
    assert server.arrived == []
    assert [row.state for row in Delivery.objects.all()] == [DeliveryState.DROPPED]


def test_who_is_disabled_and_who_sees_other_projects_is_told_nothing(
    server: MailServer, wish: Subscription, carol: User, vision_team: Project, training: Workload
) -> None:
    happens(WorkloadFactory(project=vision_team))
    carol.is_active = False
    carol.save()
    happens(training)
    turn()
    assert server.arrived == []


def test_a_key_bound_to_a_project_is_told_of_no_other(
    server: MailServer, channel: NotificationChannel, admin: User, llm_team: Project, vision_team: Project
) -> None:
    User.objects.filter(pk=admin.pk).update(email="admin@example.org")
    actor = acting(admin)
    bound = Actor(actor.kind, actor.id, actor.name, actor.channel, limits=CredentialLimits(project_id=llm_team.pk))
    channels.subscribe(events=EVENTS, names=["email"], actor=bound)
    happens(WorkloadFactory(project=vision_team, name="theirs"))
    happens(WorkloadFactory(project=llm_team, name="ours"))
    turn()
    (mail,) = server.arrived
    assert "Workload ours" in mail.get_content()


def test_a_shared_mailbox_gets_one_mail_however_many_subscribe(
    server: MailServer, wish: Subscription, llm_team: Project, training: Workload
) -> None:
    configured(recipients=["ops@example.org"], directNotifications=False)
    channels.subscribe(events=EVENTS, names=["email"], actor=acting(mailed("dora", llm_team)))
    happens(training)
    turn()
    assert server.envelopes == ["ops@example.org"]


def test_a_dead_server_is_asked_once_a_turn_and_given_up_in_the_end(
    server: MailServer, wish: Subscription, training: Workload
) -> None:
    server.greeting = 421
    for _ in range(3):
        happens(training)
    started = timezone.now()
    turn()
    assert timezone.now() - started < timedelta(seconds=5)
    assert server.connections == 1
    assert {(row.state, row.attempts) for row in Delivery.objects.all()} == {("waiting", 1)}
    turn()
    assert server.connections == 1, "it pauses"
    for number in range(1, 8):
        turn(later=number * 7200)
    assert {row.state for row in Delivery.objects.all()} == {DeliveryState.FAILED}
    assert Delivery.objects.first().trouble == "Failed after 8 attempts. Mail server error 421."
    server.greeting = 220
    turn(later=100_000)
    assert server.arrived == []


def test_a_dead_server_holds_up_no_other_channel(server: MailServer, wish: Subscription, training: Workload) -> None:
    with mail_server() as other:
        other.greeting = 421
        channels.add_channel(name="broken", type_="email", config=config(other.port), actor=SYSTEM)
        user = User.objects.get(username="carol")
        channels.subscribe(events=EVENTS, names=["broken"], actor=acting(user))
        happens(training)
        turn()
    assert (len(server.arrived), other.connections) == (1, 1)


def test_a_server_that_never_comes_to_an_end_is_cut_off(
    server: MailServer, wish: Subscription, training: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailing, "LONGEST", 0.5)
    server.drips = True
    happens(training)
    started = timezone.now()
    turn()
    assert timezone.now() - started < timedelta(seconds=5)
    assert (Delivery.objects.get().state, Delivery.objects.get().attempts) == ("waiting", 1)
    server.drips = False
    turn(later=60)
    assert len(server.arrived) == 1


def test_a_refused_address_fails_at_once_and_the_others_arrive(
    server: MailServer, wish: Subscription, training: Workload
) -> None:
    server.refused["gone@example.org"] = 550
    configured(recipients=["gone@example.org", "ops@example.org"])
    happens(training)
    turn()
    assert sorted(mail["To"] for mail in server.arrived) == ["carol@example.org", "ops@example.org"]
    (failed,) = Delivery.objects.filter(state=DeliveryState.FAILED)
    assert failed.trouble == "The mail server rejected the address (550)."


def test_an_address_out_of_bounds_is_not_asked(
    server: MailServer, wish: Subscription, training: Workload, settings: Any
) -> None:
    settings.RUNG_CLUSTER_ADDRESSES = []
    happens(training)
    turn()
    assert server.connections == 0
    assert "not allowed by RUNG_CLUSTER_ADDRESSES" in Delivery.objects.get().trouble
    assert not channels.works(type_="email", config=config(server.port), actor=SYSTEM)


def test_t57_what_workloads_say_breaks_no_header_and_fills_no_place(
    server: MailServer, wish: Subscription, training: Workload
) -> None:
    configured(subject="{{ .workload }} {{ .reason }}")
    Workload.objects.filter(pk=training.pk).update(name="a\r\nBcc: x@evil.example\u2028{{ .project }}")
    happens(training, message="<script>alert(1)</script>\r\n.\r\nMAIL FROM:<x@evil.example>\x1b[2J")
    turn()
    (mail,) = server.arrived
    assert mail["Bcc"] is None
    assert mail["Subject"] == "a Bcc: x@evil.example {{ .project }} Running"
    assert mail.get_content_type() == "text/plain"
    assert "\x1b" not in mail.get_content()
    assert server.envelopes == ["carol@example.org"]


def test_a_password_that_does_not_open_any_more_is_said_and_sent_nowhere(
    server: MailServer, wish: Subscription, training: Workload
) -> None:
    NotificationChannel.objects.update(sealed="gAAAA")
    happens(training)
    turn()
    assert Delivery.objects.get().trouble == "The stored password cannot be decrypted. Enter it again."
    assert server.connections == 0


def test_only_platform_admins_manage_channels_and_everybody_only_their_own_subscriptions(
    wish: Subscription, alice: User, server: MailServer
) -> None:
    actor = acting(alice)
    with pytest.raises(Forbidden):
        channels.channel_named(name="email", actor=actor)
    with pytest.raises(Forbidden):
        channels.works(type_="email", config=config(server.port), actor=actor)
    with pytest.raises(Forbidden):
        channels.set_state(actor=actor, enabled=False)
    with pytest.raises(NotFound):
        channels.unsubscribe(key=wish.pk, actor=actor)
    assert server.connections == 0


def test_what_ended_long_ago_is_dropped_and_never_told_again(
    server: MailServer, wish: Subscription, training: Workload
) -> None:
    happens(training)
    turn()
    Delivery.objects.update(done_at=timezone.now() - timedelta(days=30))
    happens(training, "Failed")
    delivery.collect()
    assert delivery.forget_old() == 1
    turn()
    assert [mail["Subject"].rpartition(" ")[2] for mail in server.arrived] == ["Running", "Failed"]


def test_who_comes_later_is_told_nothing_of_before(
    server: MailServer, wish: Subscription, llm_team: Project, vision_team: Project, carol: User, training: Workload
) -> None:
    happens(training)
    happens(WorkloadFactory(project=vision_team, name="theirs", phase="Running"))
    turn()
    configured(recipients=["ops@example.org"])
    MembershipFactory(user=carol, role=Role.MEMBER, project=vision_team)
    happens(training, "Failed")
    turn()
    told = [f"{mail['To'].partition('@')[0]} {mail['Subject'].rpartition(' ')[2]}" for mail in server.arrived]
    assert sorted(told) == ["carol Failed", "carol Running", "ops Failed"]


@pytest.mark.parametrize("leaves", ["unsubscribes", "loses the project"])
def test_a_shared_mailbox_is_told_as_long_as_one_of_its_subscribers_may(
    server: MailServer, wish: Subscription, carol: User, llm_team: Project, training: Workload, leaves: str
) -> None:
    configured(recipients=["ops@example.org"], directNotifications=False)
    dora = mailed("dora", llm_team)
    channels.subscribe(events=EVENTS, names=["email"], actor=acting(dora))
    happens(training)
    delivery.collect()
    if leaves == "unsubscribes":
        channels.unsubscribe(key=wish.pk, actor=acting(carol))
    else:
        Membership.objects.filter(user=carol).delete()
    turn()
    assert server.envelopes == ["ops@example.org"]
    happens(training, "Failed")
    delivery.collect()
    Membership.objects.filter(user=dora).delete()
    turn()
    assert server.envelopes == ["ops@example.org"]


def test_more_subscribers_cost_a_reading_no_more_queries_each(
    channel: NotificationChannel, llm_team: Project, training: Workload, django_assert_max_num_queries: Any
) -> None:
    carol = mailed("carol", llm_team)
    for _ in range(12):
        channels.subscribe(events=EVENTS, names=["email"], actor=acting(carol))
    happens(training)
    place_events()
    with django_assert_max_num_queries(14):
        delivery.collect()


def test_wishes_of_people_who_are_gone_go_too(wish: Subscription, carol: User) -> None:
    Subscription.objects.create(subject_kind="service_account", subject_id="x", subject_name="x")
    delivery.forget_old()
    assert Subscription.objects.count() == 2
    User.objects.filter(pk=carol.pk).delete()
    delivery.forget_old()
    assert [each.subject_kind for each in Subscription.objects.all()] == ["service_account"]


@pytest.mark.postgres
def test_two_beats_and_two_workers_send_one_mail(postgres_db: str, server: MailServer) -> None:
    channels.set_state(actor=SYSTEM, enabled=True)
    channels.add_channel(name="", type_="email", config=config(server.port), actor=SYSTEM)
    workloads = WorkloadFactory.create_batch(5)
    carol = mailed("carol", workloads[0].project)
    for each in workloads[1:]:
        MembershipFactory(user=carol, role=Role.MEMBER, project=each.project)
    channels.subscribe(events=EVENTS, names=["email"], actor=acting(carol))
    for each in workloads:
        happens(each)
    start = Barrier(4)

    def work(number: int) -> None:
        try:
            start.wait()
            notify() if number % 2 else turn()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    turn()
    assert len(server.arrived) == Delivery.objects.filter(state=DeliveryState.SENT).count() == 5
