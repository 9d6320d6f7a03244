"""What a cluster lacks for another scheduler: kinds it does not serve, rights that Rung has not, its configuration."""

import time
from dataclasses import dataclass

from clusters.errors import ClusterError
from clusters.ports import ClusterGateway, Kind, SchedulerFlavour
from clusters.rbac import required_access
from clusters.services.connection_test import DEADLINE, Permission, Reviewer, Reviews


@dataclass(frozen=True, slots=True)
class Hindrances:
    """What forbids a scheduler, and warnings that do not."""

    unserved: tuple[Kind, ...] = ()
    lacking: tuple[Permission, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        """Nothing forbids it."""
        return not (self.unserved or self.lacking)

    @property
    def sentence(self) -> str:
        """All of it in one."""
        kinds = ", ".join(f"{kind.kind} of {kind.api_version}" for kind in self.unserved)
        rights = ", ".join(f"{'/'.join(each.missing + each.unknown)} {each.access.full_name}" for each in self.lacking)
        said = [f"The cluster does not serve {kinds}." if kinds else "", f"Rung may not {rights}." if rights else ""]
        return " ".join(filter(None, said))


def hindrances(gateway: ClusterGateway, before: SchedulerFlavour, after: SchedulerFlavour) -> Hindrances:
    """Ask for what the new scheduler needs beyond the old one. Raises ClusterError."""
    needed = (*after.kinds(), *after.traits.beside) if after.traits.installed else ()
    return Hindrances(
        unserved=tuple(kind for kind in needed if not gateway.serves(kind)),
        lacking=_lacking(gateway, before, after),
        warnings=_warnings(gateway, after),
    )


def _lacking(gateway: ClusterGateway, before: SchedulerFlavour, after: SchedulerFlavour) -> tuple[Permission, ...]:
    """Simulated clusters have no rights to ask for."""
    if not isinstance(gateway, Reviewer):
        return ()
    known = required_access(before.name)
    news = [access for access in required_access(after.name) if access not in known]
    found = Reviews(gateway, until=time.monotonic() + DEADLINE).permissions(news)
    return tuple(each for each in found if not each.granted)


def _warnings(gateway: ClusterGateway, after: SchedulerFlavour) -> tuple[str, ...]:
    configured = after.traits.configuration
    if configured is None:
        return ()
    try:
        return configured.warnings_of(gateway.get(configured.ref))
    except ClusterError:
        return configured.warnings_of(None)
