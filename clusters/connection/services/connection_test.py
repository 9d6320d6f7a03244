"""Test a connection: identity, rights, installed schedulers, and what another scheduler would lack.

What the cluster answers is a stranger's text: cut, stripped of control characters, and never believed further.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from clusters.connection.rules.rights import RequiredAccess, required_access
from clusters.connection.services.gateways import gateway_to
from clusters.connection.services.scheduler_config import configuration_warnings, read_facts_or_empty
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.ports.connection import Connection
from clusters.ports.flavour import Facts, SchedulerFlavour
from clusters.ports.gateway import ClusterError, ClusterGateway, Kind, Manifest, ObjectRef
from portal.kit.security.strict_json import visible

ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
SUBJECT_REVIEW: Final = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
DEFAULT: Final = "kube"
THREADS: Final = 8
DEADLINE: Final = 20.0
"""Seconds for all questions together; what was not answered by then is not known."""

EXCESS: Final = (
    (RequiredAccess("*", "*", ("*",), "everything (cluster admin)"), "*"),
    (RequiredAccess("", "secrets", ("get",), "all secrets"), "get"),
    (RequiredAccess("", "pods", ("create",), "exec in pods", subresource="exec"), "create"),
    (RequiredAccess("", "users", ("impersonate",), "impersonation"), "impersonate"),
)


@runtime_checkable
class AccessReviewer(Protocol):
    """What can be asked whether Rung may do something."""

    def review(self, kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]: ...


class TestedGateway(Protocol):
    """What a test needs of a gateway."""

    def version(self) -> str: ...
    def identity(self) -> tuple[str, str]: ...
    def review(self, kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def serves(self, kind: Kind) -> bool: ...
    def get(self, ref: ObjectRef) -> Manifest | None: ...
    def list(self, kind: Kind, *, managed_only: bool = True) -> tuple[list[Manifest], str]: ...
    def close(self) -> None: ...


OpensGateway = Callable[[Connection], TestedGateway]


@dataclass(frozen=True, slots=True)
class RightCheck:
    """A right Rung needs: which of its verbs are granted, refused, or could not be asked."""

    access: RequiredAccess
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def granted(self) -> bool:
        return not (self.missing or self.unknown)


@dataclass(frozen=True, slots=True)
class MissingRights:
    """Resources that lack the same verbs for the same purpose."""

    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    why: str
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """What a test found. `error` is empty when the cluster let itself be asked; then the rest is known."""

    error: str = ""
    code: str = ""
    uid: str = ""
    version: str = ""
    username: str = ""
    milliseconds: int = 0
    permissions: tuple[RightCheck, ...] = ()
    excess: tuple[str, ...] = ()
    schedulers: tuple[SchedulerFlavour, ...] = ()  # installed, beside the one that is always there
    fitting: str = DEFAULT
    warnings: tuple[str, ...] = ()  # what the scheduler there is configured not to do
    configured: Facts = field(default_factory=dict)  # what its configuration says
    unserved: tuple[str, ...] = ()  # kinds without which the asked flavour cannot work

    @property
    def lacking(self) -> tuple[RightCheck, ...]:
        """Rights that are missing or unknown."""
        return tuple(each for each in self.permissions if not each.granted)

    @property
    def gaps(self) -> tuple[MissingRights, ...]:
        """What is lacking, like with like."""
        alike: dict[tuple[tuple[str, ...], tuple[str, ...], str], list[str]] = {}
        for each in self.lacking:
            alike.setdefault((each.missing, each.unknown, each.access.why), []).append(each.access.full_name)
        return tuple(MissingRights(*key, tuple(names)) for key, names in alike.items())

    @property
    def works(self) -> bool:
        """Whether it was reached, its identity matches, and all rights and scheduler requirements are present."""
        return not self.error and bool(self.uid) and not (self.lacking or self.unserved)


def open_gateway(connection: Connection) -> TestedGateway:
    """The real thing, to the checked address and with the given credential only."""
    return gateway_to(connection, name="connection test")


def try_connection(connection: Connection, flavour: str, *, opens: OpensGateway = open_gateway) -> ConnectionReport:
    """Everything worth knowing before Rung works there. Never raises for what the cluster says or fails to say.

    1. reach it: address, TLS, version, and how long that takes
    2. who are we there, and which cluster is it
    3. ask for every right Rung needs, and for some it should not have
    4. which schedulers are installed, and what the asked one is configured not to do
    """
    started, dialect = time.monotonic(), flavour_for(flavour)
    try:
        gateway = opens(connection)
    except ClusterError as error:
        return _unreached(error)
    try:
        version = cut(gateway.version(), 40)
        milliseconds = round((time.monotonic() - started) * 1000)
        reviews = RightsReview(gateway, until=started + DEADLINE)
        schedulers, facts = _schedulers(gateway), read_facts_or_empty(gateway, dialect)
        return ConnectionReport(
            uid=_uid(gateway),
            version=version,
            username=_username(gateway),
            milliseconds=milliseconds,
            permissions=reviews.permissions(required_access(flavour)),
            excess=reviews.excess(),
            schedulers=schedulers,
            fitting=_fitting(schedulers, flavour),
            warnings=configuration_warnings(dialect, facts),
            configured=facts,
            unserved=_unserved(gateway, dialect),
        )
    except ClusterError as error:
        return _unreached(error)
    finally:
        gateway.close()


def identify(connection: Connection, *, opens: OpensGateway = open_gateway) -> tuple[str, str]:
    """(uid of kube-system, version) of the server. Raises ClusterError."""
    gateway = opens(connection)
    try:
        uid, version = gateway.identity()
        return cut(uid, 64), cut(version, 40)
    finally:
        gateway.close()


def cut(text: object, longest: int) -> str:
    """A stranger's text, fit to be stored and shown."""
    return visible(text, longest - 1)[:longest]


def _unreached(error: ClusterError) -> ConnectionReport:
    return ConnectionReport(error=cut(error.message, 500), code=error.code)


def _uid(gateway: TestedGateway) -> str:
    """Empty where the account may not read the namespace; that right is listed as missing."""
    try:
        return cut(gateway.identity()[0], 64)
    except ClusterError:
        return ""


def _username(gateway: TestedGateway) -> str:
    """The user name that the API server authenticates; empty if it does not say."""
    try:
        info = gateway.review(SUBJECT_REVIEW, {}).get("userInfo")
    except ClusterError:
        return ""
    return cut(info.get("username", ""), 253) if isinstance(info, Mapping) else ""


def _schedulers(gateway: TestedGateway) -> tuple[SchedulerFlavour, ...]:
    return tuple(each for each in FLAVOURS.values() if _is_installed(gateway, each.traits.installed))


def _is_installed(gateway: TestedGateway, mark: Kind | None) -> bool:
    try:
        return mark is not None and gateway.serves(mark)
    except ClusterError:
        return False


def _fitting(installed: Sequence[SchedulerFlavour], requested: str) -> str:
    """The flavour of what is installed; what is an admin's choice only where it was chosen."""
    suggested = [each.name for each in installed if each.traits.suggested]
    if suggested:
        return suggested[0]
    return requested if requested in {each.name for each in installed} else DEFAULT


def _unserved(gateway: TestedGateway, flavour: SchedulerFlavour) -> tuple[str, ...]:
    """What is missing of the kinds that another scheduler than the one that is always there brings along."""
    if flavour.traits.installed is None:
        return ()
    always = flavour_for(DEFAULT).kinds()
    own = [kind for kind in (*flavour.kinds(), *flavour.traits.beside) if kind not in always]
    missing = [kind for kind in own if not gateway.serves(kind)]
    return tuple(f"{kind.kind} of {kind.api_version}" for kind in missing)


class RightsReview:
    """Asks for rights, a few at a time, until the deadline."""

    def __init__(self, gateway: AccessReviewer, *, until: float) -> None:
        self._gateway = gateway
        self._until = until

    def permissions(self, accesses: Sequence[RequiredAccess]) -> tuple[RightCheck, ...]:
        """One permission per access, in its order."""
        questions = [(access, verb) for access in accesses for verb in access.verbs]
        with ThreadPoolExecutor(THREADS) as pool:
            answers = dict(zip(questions, pool.map(lambda each: self._may(*each), questions), strict=True))
        return tuple(
            RightCheck(
                access,
                missing=tuple(verb for verb in access.verbs if answers[access, verb] is False),
                unknown=tuple(verb for verb in access.verbs if answers[access, verb] is None),
            )
            for access in accesses
        )

    def excess(self) -> tuple[str, ...]:
        """What the account may that Rung never needs."""
        return tuple(access.why for access, verb in EXCESS if self._may(access, verb))

    def _may(self, access: RequiredAccess, verb: str) -> bool | None:
        if time.monotonic() > self._until:
            return None
        attributes = {"group": access.group, "resource": access.resource, "verb": verb}
        attributes |= {"subresource": access.subresource} if access.subresource else {}
        attributes |= {"name": access.name} if access.name else {}
        try:
            return self._gateway.review(ACCESS_REVIEW, {"resourceAttributes": attributes}).get("allowed") is True
        except ClusterError:
            return None


@dataclass(frozen=True, slots=True)
class SwitchPreconditions:
    """What forbids a scheduler, and warnings that do not; and how it is configured there."""

    unserved: tuple[Kind, ...] = ()
    lacking: tuple[RightCheck, ...] = ()
    warnings: tuple[str, ...] = ()
    configured: Facts = field(default_factory=dict)
    kinds: tuple[Kind, ...] = ()

    @property
    def none(self) -> bool:
        """Nothing forbids it."""
        return not (self.unserved or self.lacking)

    @property
    def unreadable(self) -> frozenset[str]:
        """Keys of the new scheduler's kinds of which nothing can be listed: not served, or not Rung's to list."""
        named = {f"{kind.plural}.{kind.group}": kind.key for kind in self.kinds}
        forbidden = {each.access.full_name for each in self.lacking if "list" in each.missing + each.unknown}
        return frozenset(kind.key for kind in self.unserved) | {named[each] for each in forbidden & named.keys()}

    @property
    def sentence(self) -> str:
        kinds = ", ".join(f"{kind.kind} of {kind.api_version}" for kind in self.unserved)
        rights = ", ".join(f"{'/'.join(each.missing + each.unknown)} {each.access.full_name}" for each in self.lacking)
        sentences = [
            f"The cluster does not serve {kinds}." if kinds else "",
            f"Rung may not {rights}." if rights else "",
        ]
        return " ".join(filter(None, sentences))


def hindrances(gateway: ClusterGateway, before: SchedulerFlavour, after: SchedulerFlavour) -> SwitchPreconditions:
    """Ask for what the new scheduler needs beyond the old one. Raises ClusterError."""
    facts = read_facts_or_empty(gateway, after)
    needed = (*after.kinds(), *after.traits.beside) if after.traits.installed else ()
    return SwitchPreconditions(
        unserved=tuple(kind for kind in needed if not gateway.serves(kind)),
        lacking=_lacking(gateway, before, after),
        warnings=configuration_warnings(after, facts),
        configured=facts,
        kinds=tuple(after.kinds()),
    )


def _lacking(gateway: ClusterGateway, before: SchedulerFlavour, after: SchedulerFlavour) -> tuple[RightCheck, ...]:
    """Simulated clusters have no rights to ask for."""
    if not isinstance(gateway, AccessReviewer):
        return ()
    known = required_access(before.name)
    news = [access for access in required_access(after.name) if access not in known]
    found = RightsReview(gateway, until=time.monotonic() + DEADLINE).permissions(news)
    return tuple(each for each in found if not each.granted)
