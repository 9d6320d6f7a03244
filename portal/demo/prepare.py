"""What the demo needs before its processes start: a current database, static files, an organisation to look at.

Its one argument, if any, is the kubeconfig of a lab that is up.
"""

import sys

import django
from django.apps import apps
from django.conf import settings
from django.core.management import call_command


def prepare(*kubeconfig: str) -> None:
    """Safe at every start: data that is there stays; heartbeats of an earlier run are forgotten."""
    call_command("migrate", verbosity=0, interactive=False)
    call_command("collectstatic", verbosity=0, interactive=False)
    if not apps.get_model("tenants.Project")._default_manager.exists():
        call_command("load_demo")
    call_command("load_lab", *kubeconfig)
    call_command("sandbox_speed", str(settings.RUNG_DEMO_SPEED))
    apps.get_model("core.Heartbeat")._default_manager.all().delete()


if __name__ == "__main__":
    django.setup()
    prepare(*sys.argv[1:])
