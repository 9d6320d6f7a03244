"""App configuration of the workloads."""

from django.apps import AppConfig


class WorkloadsConfig(AppConfig):
    """Registers the dictionary as desired state, the observation handler, and use for the tenants' quotas."""

    name = "workloads"
    default_auto_field = "django.db.models.BigAutoField"
    # Changes of these decide about submits.
    marked = {"rules": {"Priority": (), "Category": (), "WorkloadType": (), "Policy": ()}}

    def ready(self) -> None:
        """Models exist only from here on."""
        from clusters import naming, observation, retention, samples, sources, switches
        from tenants import leaving, usage
        from workloads.sampling import sample
        from workloads.selectors.keeping import needed_pods
        from workloads.services.observe import on_observation
        from workloads.services.preparing import forget
        from workloads.services.switching import WORKFORCE
        from workloads.sources import desired_state, homes_of, names_of
        from workloads.usage import PROVIDER

        sources.register(desired_state)
        naming.register(names_of)
        naming.register_homes(homes_of)
        observation.register(on_observation)
        retention.register(needed_pods)
        switches.register(WORKFORCE)
        usage.register(PROVIDER)
        leaving.register(forget)
        samples.register(sample)
