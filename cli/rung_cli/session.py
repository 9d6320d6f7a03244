"""What every command has at hand: the options of `rung` itself, the profile they lead to, and the signed API."""

import os
from dataclasses import dataclass, field
from functools import cached_property

import typer

from rung_cli import profiles
from rung_cli.addresses import checked_address
from rung_cli.errors import Misused
from rung_cli.notes import warn
from rung_cli.output import Format, Output
from rung_cli.profiles import Profile
from rung_cli.signing import Api, Signer
from rung_cli.wire import Manner, Wire


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

    @cached_property
    def profile_name(self) -> str:
        """`--profile`, RUNG_PROFILE, the configuration's default."""
        return self.options.profile or os.environ.get("RUNG_PROFILE") or profiles.load().default_profile

    @cached_property
    def profile(self) -> Profile:
        """What the configuration says; an empty one where it says nothing."""
        known = profiles.load().profiles
        named = self.options.profile or os.environ.get("RUNG_PROFILE")
        if named and known and named not in known and not self._address_elsewhere:
            raise Misused(f"There is no profile {named}; there are {', '.join(known)}.")
        return known.get(self.profile_name, Profile())

    @cached_property
    def wire(self) -> Wire:
        """The connection. Misused where the address is missing or unsafe."""
        return self.wire_to(self.options.url or os.environ.get("RUNG_URL") or self.profile.url)

    @cached_property
    def api(self) -> Api:
        """Signed requests."""
        return Api(self.wire, Signer(self.wire, self.profile_name))

    def wire_to(self, address: str) -> Wire:
        """A connection to this address."""
        if not address:
            raise Misused("Which portal? No address is known.", hint="rung login https://… (or --url, or RUNG_URL)")
        plain_allowed = self.options.insecure_http or self.profile.insecure_http
        checked = checked_address(address, insecure_http=plain_allowed)
        if plain_allowed and _is_plain(checked):
            warn(f"{checked} is not encrypted: the secret and every token can be read on the way.")
        manner = Manner(
            timeout=self.options.timeout,
            retries=self.options.retries,
            ca_file=self.options.ca_file or os.environ.get("RUNG_CA_FILE") or self.profile.ca_file,
            debug=self.options.debug,
        )
        return Wire(checked, manner)

    def output(self, chosen: Format | None) -> Output:
        """As `-o` says, else as the profile says, else a table."""
        if chosen is None and self.profile.output:
            if self.profile.output not in list(Format):
                raise Misused(f"The profile {self.profile_name} says output: {self.profile.output}.")
            chosen = Format(self.profile.output)
        self.format = chosen or Format.TABLE
        return Output(self.format)

    def project(self, chosen: str) -> str:
        """`--project`, RUNG_PROJECT, the profile's; empty for none."""
        return chosen or os.environ.get("RUNG_PROJECT") or self.profile.project

    def close(self) -> None:
        """Give back what is open."""
        if "wire" in self.__dict__:
            self.wire.close()

    @property
    def _address_elsewhere(self) -> bool:
        return bool(self.options.url or os.environ.get("RUNG_URL"))


def _is_plain(address: str) -> bool:
    """Would the address be refused without leave?"""
    try:
        checked_address(address)
    except Misused:
        return True
    return False


def session(ctx: typer.Context) -> Session:
    """Of this run."""
    found = ctx.obj
    assert isinstance(found, Session)  # noqa: S101 - main puts it there
    return found
