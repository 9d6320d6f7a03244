"""What every command has at hand: the options of `rung` itself, the profile they lead to, and the signed API."""

import os
from dataclasses import dataclass, field
from functools import cached_property

import typer

from rung_cli.config import profiles
from rung_cli.config.profiles import Profile
from rung_cli.errors import UsageError
from rung_cli.http.addresses import origin_of, validate_address
from rung_cli.http.client import Api, Signer
from rung_cli.http.transport import RequestOptions, RestTransport
from rung_cli.output.formats import Format, Output
from rung_cli.output.stderr import warn


@dataclass
class Options:
    """Given before or after the command's name."""

    profile: str = ""
    url: str = ""
    ca_file: str = ""
    insecure_http: bool = False
    debug: bool = False
    retries: int = 4
    timeout: float = 30.0


@dataclass
class Session:
    """One run of the command. Flags beat the environment, which beats the profile."""

    options: Options = field(default_factory=Options)
    format: Format = Format.TABLE
    tail: tuple[str, ...] = ()
    """What stood after `--`."""
    _open: list[RestTransport] = field(default_factory=list)

    @cached_property
    def profile_name(self) -> str:
        """`--profile`, RUNG_PROFILE, the configuration's default."""
        return self._named or profiles.load().default_profile

    @cached_property
    def profile(self) -> Profile:
        """The configured profile; an empty one without configuration. UsageError for an unknown name."""
        known = profiles.load().profiles
        if self._named and known and self._named not in known and not self._address_elsewhere:
            raise UsageError(f"Unknown profile {self._named}. Known profiles: {', '.join(known)}.")
        return self.profile_to_be

    @property
    def profile_to_be(self) -> Profile:
        """The same, also for one that signing in is about to make."""
        return profiles.load().profiles.get(self.profile_name, Profile())

    @property
    def _named(self) -> str:
        return self.options.profile or os.environ.get("RUNG_PROFILE") or ""

    @cached_property
    def wire(self) -> RestTransport:
        """The connection. UsageError where the address is missing or unsafe."""
        return self.wire_to(self.options.url or os.environ.get("RUNG_URL") or self.profile.url)

    @cached_property
    def api(self) -> Api:
        """Signed requests."""
        return Api(self.wire, Signer(self.wire, self.profile_name))

    def wire_to(self, address: str) -> RestTransport:
        """A connection to this address."""
        if not address:
            raise UsageError("No portal address.", hint="rung login https://… (or --url, or RUNG_URL)")
        known = self._kept_for(address)
        plain_allowed = self.options.insecure_http or known.insecure_http
        checked = validate_address(address, insecure_http=plain_allowed)
        if plain_allowed and _is_plain(checked):
            warn(f"{checked} is not encrypted: the secret and all tokens can be intercepted.")
        manner = RequestOptions(
            timeout=self.options.timeout,
            retries=self.options.retries,
            ca_file=self.options.ca_file or os.environ.get("RUNG_CA_FILE") or known.ca_file,
            debug=self.options.debug,
        )
        self._open.append(RestTransport(checked, manner))
        return self._open[-1]

    def output(self, chosen: Format | None) -> Output:
        """As `-o` says, else as the profile says, else a table."""
        if chosen is None and self.profile.output:
            if self.profile.output not in list(Format):
                raise UsageError(f"Profile {self.profile_name} has the unknown output {self.profile.output}.")
            chosen = Format(self.profile.output)
        self.format = chosen or Format.TABLE
        return Output(self.format)

    def project(self, chosen: str) -> str:
        """`--project`, RUNG_PROJECT, the profile's; empty for none."""
        return chosen or os.environ.get("RUNG_PROJECT") or self.profile.project

    def close(self) -> None:
        """Give back what is open."""
        for each in self._open:
            each.close()

    def _kept_for(self, address: str) -> Profile:
        """The profile, if it is of this address: its leave and its authorities are for no other."""
        known = self.profile_to_be
        return known if known.url and origin_of(known.url) == origin_of(address) else Profile()

    @property
    def _address_elsewhere(self) -> bool:
        return bool(self.options.url or os.environ.get("RUNG_URL"))


def _is_plain(address: str) -> bool:
    """Would the address be refused without leave?"""
    try:
        validate_address(address)
    except UsageError:
        return True
    return False


def session(ctx: typer.Context) -> Session:
    """Of this run."""
    found = ctx.obj
    assert isinstance(found, Session)  # noqa: S101 - main puts it there
    return found
