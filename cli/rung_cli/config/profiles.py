"""Profiles: where a portal is and what a person usually means there. No secrets; those are in `keeping`.

`config.yaml` holds `default_profile` and `profiles` by name; each may say `url`, `client_id`, `project`, `output`,
`ca_file` and `insecure_http`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import yaml

from rung_cli.config.files import check_owner, folder, read, write_private
from rung_cli.errors import UsageError

DEFAULT: Final = "default"
SECRETS: Final = ("secret", "password", "token")


@dataclass(frozen=True, slots=True)
class Profile:
    """One portal as one person uses it."""

    url: str = ""
    client_id: str = ""
    project: str = ""
    output: str = ""
    ca_file: str = ""
    insecure_http: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file."""

    default_profile: str
    profiles: Mapping[str, Profile]


def path_of() -> Path:
    """Where it is."""
    return folder() / "config.yaml"


def load() -> Config:
    """The configuration; empty where there is none. UsageError for what is not understood, and for secrets in it."""
    path = path_of()
    check_owner(path)
    try:
        found = yaml.safe_load(read(path) or "") or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("profiles", {}), dict):
        raise UsageError(f"{path} must contain default_profile and profiles.")
    profiles = {str(name): _profile(path, str(name), each) for name, each in found.get("profiles", {}).items()}
    return Config(str(found.get("default_profile") or DEFAULT), profiles)


def save(name: str, profile: Profile) -> None:
    """Add or replace one profile; the first one becomes the default."""
    before = load()
    profiles = {**before.profiles, name: profile}
    _write(before.default_profile if before.profiles else name, profiles)


def use(name: str) -> None:
    """Make a profile the default. UsageError where there is none of that name."""
    known = load()
    if name not in known.profiles:
        names = ", ".join(known.profiles) or "none"
        raise UsageError(
            f"Unknown profile {name}. Known profiles: {names}.", hint="Make it with: rung login --profile NAME"
        )
    _write(name, known.profiles)


def _write(default: str, profiles: Mapping[str, Profile]) -> None:
    shown = {key: _spoken(each) for key, each in profiles.items()}
    text = yaml.safe_dump({"default_profile": default, "profiles": shown}, sort_keys=False, allow_unicode=True)
    write_private(path_of(), text)


def _spoken(profile: Profile) -> dict[str, Any]:
    return {key: value for key, value in asdict(profile).items() if value}


def _profile(path: Path, name: str, found: Any) -> Profile:
    if not isinstance(found, dict):
        raise UsageError(f"{path}: profile {name} must be a mapping.")
    known = {field.name: type(field.default) for field in fields(Profile)}
    for key, value in found.items():
        if any(word in str(key).lower() for word in SECRETS):
            raise UsageError(
                f"{path}: profile {name} contains {key}. Secrets are not allowed in this file.",
                hint="Remove it, rotate it in the portal, and use: rung login",
            )
        if key not in known:
            raise UsageError(f"{path}: profile {name} has the unknown key {key!r}. Known keys: {', '.join(known)}.")
        if not isinstance(value, known[key]):
            raise UsageError(f"{path}: {key} of profile {name} has the wrong type.")
    return Profile(**found)
