"""What a cluster lacks for another scheduler: kinds it does not serve, rights that Rung has not, its configuration."""

import time
from dataclasses import dataclass, field

from clusters.ports import ClusterGateway, Facts, Kind, SchedulerFlavour
from clusters.rbac import required_access
from clusters.services.configured import facts_if_read, warnings_of
from clusters.services.connection_test import DEADLINE, Permission, Reviewer, Reviews


@dataclass(frozen=True, slots=True)
class Hindrances:
    """What forbids a scheduler, and warnings that do not; and how it is configured there."""

    unserved: tuple[Kind, ...] = ()
    lacking: tuple[Permission, ...] = ()
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
        """All of it in one."""
        kinds = ", ".join(f"{kind.kind} of {kind.api_version}" for kind in self.unserved)
        rights = ", ".join(f"{'/'.join(each.missing + each.unknown)} {each.access.full_name}" for each in self.lacking)
        said = [f"The cluster does not serve {kinds}." if kinds else "", f"Rung may not {rights}." if rights else ""]
        return " ".join(filter(None, said))


def hindrances(gateway: ClusterGateway, before: SchedulerFlavour, after: SchedulerFlavour) -> Hindrances:
    """Ask for what the new scheduler needs beyond the old one. Raises ClusterError."""
    facts = facts_if_read(gateway, after)
    needed = (*after.kinds(), *after.traits.beside) if after.traits.installed else ()
    return Hindrances(
        unserved=tuple(kind for kind in needed if not gateway.serves(kind)),
        lacking=_lacking(gateway, before, after),
        warnings=warnings_of(after, facts),
        configured=facts,
        kinds=tuple(after.kinds()),
    )


def _lacking(gateway: ClusterGateway, before: SchedulerFlavour, after: SchedulerFlavour) -> tuple[Permission, ...]:
    """Simulated clusters have no rights to ask for."""
    if not isinstance(gateway, Reviewer):
        return ()
    known = required_access(before.name)
    news = [access for access in required_access(after.name) if access not in known]
    found = Reviews(gateway, until=time.monotonic() + DEADLINE).permissions(news)
    return tuple(each for each in found if not each.granted)
