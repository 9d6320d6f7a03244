"""Prints how many forecasts of a cluster held; exports one that nothing explains as a scenario for tests."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from clusters.inventory.models import Cluster
from portal.kit.security.actors import SYSTEM
from workloads.forecast.models import ForecastResult, StoredForecast
from workloads.forecast.selectors.accuracy import (
    ForecastTally,
    in_words,
    missed_forecasts,
    start_calibration,
    tallies,
    together,
)
from workloads.forecast.services.storage import scenario_of


class Command(BaseCommand):
    """`manage.py forecast_report --cluster atlas`, for who may read the database: names of all projects are shown."""

    help = "Print how many forecasts of a cluster held and why the others did not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A cluster; or one forecast of it to export."""
        parser.add_argument("--cluster", required=True, help="name of the cluster")
        parser.add_argument("--weeks", type=int, default=4, help="newest weeks to report (1 to 520, default 4)")
        parser.add_argument("--limit", type=int, default=50, help="forecasts that did not hold to list (default 50)")
        parser.add_argument("--export", type=int, metavar="ID", help="print this unexplained forecast as a scenario")
        parser.add_argument("--names", action="store_true", help="with --export: keep the names of nodes and queues")
        parser.add_argument("--output", type=Path, help="with --export: append to this file instead")

    def handle(self, *args: Any, **options: Any) -> None:
        """The report, or one line of JSON."""
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"There is no cluster named {options['cluster'][:100]}.")
        if options["export"] is not None:
            self._export(cluster, options["export"], names=options["names"], output=options["output"])
            return
        if not 1 <= options["weeks"] <= 520 or not 1 <= options["limit"] <= 10_000:
            raise CommandError("--weeks must be 1 to 520 and --limit 1 to 10000.")
        self._report(cluster, options["weeks"], options["limit"])

    def _report(self, cluster: Cluster, weeks: int, limit: int) -> None:
        if starts := start_calibration(cluster, weeks=weeks).sentence:
            self.stdout.write(f"{starts}\n")
        found = tallies(cluster, weeks=weeks)
        if not found:
            self.stdout.write(f"No forecast of {cluster.name} has been judged yet.")
            return
        self.stdout.write(together(found).sentence)
        for tally in found:
            self.stdout.write(f"\n{_title(tally)}: {tally.sentence}")
        address = next(iter(settings.CSRF_TRUSTED_ORIGINS), "")
        for each in in_words(list(missed_forecasts(cluster)[:limit]), SYSTEM):
            page = reverse("workloads:detail", args=[each.workload.pk]) if each.workload else ""
            line = f"Forecast: {each.forecast}. Outcome: {each.happened}. {each.reason}"
            self.stdout.write(f"\n{each.id}  {each.at:%Y-%m-%d %H:%M:%S} UTC  {each.name}: {line}\n  {address}{page}")

    def _export(self, cluster: Cluster, number: int, *, names: bool, output: Path | None) -> None:
        row = StoredForecast.objects.filter(cluster=cluster, pk=number).first() if 0 < number < 2**63 else None
        if row is None:
            raise CommandError(f"{cluster.name} has no forecast {number}.")
        if row.result != ForecastResult.UNEXPLAINED:
            raise CommandError(f"Forecast {number} is not unexplained: {row.get_result_display() or 'not judged yet'}.")
        scenario = scenario_of(row)
        if scenario is None:
            raise CommandError(f"The question of forecast {number} was not stored: the cluster had too many pods.")
        text = json.dumps((scenario if names else scenario.anonymous()).as_json(), sort_keys=True)
        if output is None:
            self.stdout.write(text)
            return
        try:
            with output.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise CommandError(f"Cannot write {output}: {error.strerror}.") from error


def _title(tally: ForecastTally) -> str:
    return f"Week of {tally.week}, {tally.flavour}"
