"""Who submits, as far as reading needs to know it: the project's namespace and what an admin granted it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """The submitting project. Every grant is empty unless an admin gave it; "*" in `allowed_registries` means any."""

    namespace: str
    allowed_registries: tuple[str, ...] = ()
    managed_prefixes: tuple[str, ...] = ()
    allow_driver_capabilities_all: bool = False
    secrets: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    mig_profiles: tuple[str, ...] = ()
    node_selector_keys: tuple[str, ...] = ()
    toleration_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explicit:
    """What the form, the API or the command line asked for outright; it beats the manifest's labels and name."""

    priority: str | None = None
    preemptibility: str | None = None
    name: str | None = None
    prefix: bool = False
    """The name, of the one document that there is, is completed at submission."""
