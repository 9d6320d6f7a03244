"""App configuration of the workloads."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class WorkloadsConfig(AppConfig):
    """Registers the dictionary as desired state, the observation handler, and use for the tenants' quotas."""

    name = "workloads"
    default_auto_field = "django.db.models.BigAutoField"
    # Settings that every submit reads; see `portal.kit.db.read_cache`.
    cached = {"Priority": (), "Category": (), "WorkloadType": (), "Policy": ()}
    # Columns that lists are searched by; see `portal.kit.db.search_indexes`.
    searched = {"Workload": ("name",)}

    def ready(self) -> None:
        """Models exist only from here on."""
        from clusters.inventory import selectors as inventory_selectors
        from clusters.inventory.services import workload_hooks
        from clusters.sync import selectors as sync_selectors
        from clusters.watch import selectors as watch_selectors
        from clusters.watch.services import observations
        from portal.kit.api.routes import register_planner
        from portal.kit.security.planned_changes import register_check
        from tenants.organisation import services as organisation_services
        from tenants.usage import selectors as usage_selectors
        from workloads.dictionary.selectors import desired_state
        from workloads.dictionary.services.builtin import install_dictionary
        from workloads.dictionary.services.plan_effects import victims_of_switch
        from workloads.dictionary.services.plans import KINDS as DICTIONARY_PLANS
        from workloads.forecast.services.start_estimates import StartTrial
        from workloads.lifecycle.services.observe import on_observation
        from workloads.lifecycle.services.relocation import WORKFORCE
        from workloads.notifications.services.delivery import announce_plan
        from workloads.plans.api import PLANNER
        from workloads.plans.selectors import register_kind
        from workloads.plans.services.cluster_plans import kinds_with
        from workloads.plans.services.limit_plans import KINDS as LIMIT_PLANS
        from workloads.plans.services.plans import check_unplanned, register_announcer
        from workloads.plans.services.quota_plans import kinds_with as quota_kinds
        from workloads.policies.services import PolicyPlan
        from workloads.preemption.selectors import needed_pods
        from workloads.quota_requests.services import KINDS as REQUEST_PLANS
        from workloads.state.selectors.usage import PROVIDER, sample
        from workloads.state.selectors.workloads import homes_of, names_of
        from workloads.workload_templates.services import forget

        post_migrate.connect(install_dictionary, sender=self)
        sync_selectors.register_source(desired_state)
        inventory_selectors.register_namer(names_of)
        inventory_selectors.register_namespaces(homes_of)
        observations.register_handler(on_observation)
        observations.register_keeper(needed_pods)
        workload_hooks.register_hooks(WORKFORCE)
        usage_selectors.register_provider(PROVIDER)
        organisation_services.register_deletion_hook(forget)
        watch_selectors.register_sampler(sample)
        register_planner(PLANNER)
        register_check(check_unplanned)
        register_announcer(announce_plan)
        for name, kind in {**DICTIONARY_PLANS, **quota_kinds(StartTrial), **REQUEST_PLANS}.items():
            register_kind(name, kind)
        for name, setting in {**LIMIT_PLANS, **kinds_with(victims_of_switch), "policy": PolicyPlan()}.items():
            register_kind(name, setting.as_kind(name))
