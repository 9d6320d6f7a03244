import uuid

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.SlugField(max_length=63, unique=True)),
                ("flavour", models.CharField(help_text="Name of a scheduler flavour: kube, kai.", max_length=20)),
                (
                    "backend",
                    models.CharField(
                        default="sandbox",
                        help_text="How the cluster is reached: kubernetes, sandbox, memory.",
                        max_length=20,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("active", "Active"), ("paused", "Paused")], default="active", max_length=10
                    ),
                ),
                ("paused_reason", models.TextField(blank=True)),
                (
                    "breaker_reason",
                    models.TextField(blank=True, help_text="Why no work is sent to it for now; empty: work is sent."),
                ),
                ("breaker_since", models.DateTimeField(blank=True, null=True)),
                (
                    "breaker_retry_at",
                    models.DateTimeField(blank=True, help_text="When one workload is tried again.", null=True),
                ),
                (
                    "breaker_failures",
                    models.PositiveIntegerField(default=0, help_text="Tries in a row that the cluster failed."),
                ),
                (
                    "uid",
                    models.CharField(
                        blank=True, help_text="uid of the kube-system namespace: the cluster's identity.", max_length=64
                    ),
                ),
                ("version", models.CharField(blank=True, max_length=40)),
                (
                    "pod_security",
                    models.CharField(
                        choices=[("restricted", "Restricted"), ("baseline", "Baseline")],
                        default="restricted",
                        help_text="Pod Security level of project namespaces; baseline lets images start as root.",
                        max_length=10,
                    ),
                ),
                (
                    "defer_preemptors",
                    models.BooleanField(
                        default=False, help_text="Rung defers who would evict a run inside its minimum runtime."
                    ),
                ),
                (
                    "served_kinds",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Kinds of workload it serves, as observed last; empty: not observed yet.",
                    ),
                ),
                (
                    "silent_kinds",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Kinds of workload of which no controller answered, each with since when; as Kind.group.",
                    ),
                ),
                (
                    "configured",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="What its scheduler's configuration says, as read last; empty: it has none, or it could not be read.",
                    ),
                ),
                (
                    "generation",
                    models.PositiveBigIntegerField(default=1, help_text="Grows with every change of desired state."),
                ),
                ("synced_generation", models.PositiveBigIntegerField(default=0)),
                (
                    "sync_due_at",
                    models.DateTimeField(
                        blank=True, help_text="When the next reconcile is due; the sweep claims it.", null=True
                    ),
                ),
                (
                    "resync_due_at",
                    models.DateTimeField(
                        blank=True, help_text="Until then a run may look at what has changed only.", null=True
                    ),
                ),
                (
                    "failures",
                    models.PositiveSmallIntegerField(default=0, help_text="Runs in a row that did not succeed."),
                ),
                ("synced_at", models.DateTimeField(blank=True, null=True)),
                ("observed_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("backend", "kubernetes"), models.Q(("uid", ""), _negated=True)),
                        fields=("uid",),
                        name="clusters_one_writer_per_cluster",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Adoption",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=128)),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("uid", models.CharField(max_length=64)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="adoptions", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("cluster", "uid"), name="clusters_adoption_once")],
            },
        ),
        migrations.CreateModel(
            name="Average",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("owner", models.CharField(max_length=36)),
                ("name", models.CharField(max_length=24)),
                ("day", models.FloatField(help_text="Over the last 24 hours.", null=True)),
                ("week", models.FloatField(help_text="Over the last 7 days.", null=True)),
                ("month", models.FloatField(help_text="Over the last 30 days.", null=True)),
                ("at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="averages", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "owner", "name"), name="clusters_average_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uid", models.CharField(max_length=64)),
                ("namespace", models.CharField(max_length=63)),
                ("owner_id", models.CharField(blank=True, max_length=64)),
                ("kind", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("object_uid", models.CharField(blank=True, max_length=64)),
                ("type", models.CharField(default="Normal", max_length=16)),
                ("reason", models.CharField(max_length=128)),
                ("message", models.TextField(blank=True)),
                ("source", models.CharField(blank=True, max_length=128)),
                ("count", models.PositiveIntegerField(default=1, help_text="How often it has happened so far.")),
                ("resource_version", models.CharField(blank=True, max_length=32)),
                ("at", models.DateTimeField(help_text="When it happened last.")),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["owner_id", "-at"], name="clusters_event_owner"),
                    models.Index(fields=["at"], name="clusters_event_at"),
                    models.Index(
                        condition=models.Q(("owner_id", "")),
                        fields=["cluster", "object_uid"],
                        name="clusters_event_unowned",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("cluster", "uid"), name="clusters_event_uid_once")],
            },
        ),
        migrations.CreateModel(
            name="DirtyOwner",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("owner", models.CharField(blank=True, max_length=100)),
                ("generation", models.PositiveBigIntegerField()),
                (
                    "only",
                    models.TextField(
                        blank=True,
                        db_default="",
                        help_text="Objects that alone were touched, one a line; empty: any of the owner's.",
                    ),
                ),
                (
                    "only_at",
                    models.PositiveBigIntegerField(db_default=0, help_text="The generation of which that is said."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="touches", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("cluster", "owner"), name="clusters_touch_once")],
            },
        ),
        migrations.CreateModel(
            name="Drift",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "category",
                    models.CharField(
                        choices=[
                            ("missing", "Missing"),
                            ("changed", "Changed"),
                            ("extra", "Extra"),
                            ("conflict", "Conflict"),
                            ("stale", "Stale"),
                        ],
                        max_length=10,
                    ),
                ),
                ("kind", models.CharField(max_length=128)),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("name", models.CharField(max_length=253)),
                (
                    "owner",
                    models.CharField(
                        blank=True, help_text="Whose object it is: the value of our label.", max_length=100
                    ),
                ),
                ("message", models.TextField(blank=True)),
                ("changes", models.JSONField(default=list)),
                (
                    "object_uid",
                    models.CharField(blank=True, help_text="Of the foreign object that is in the way.", max_length=64),
                ),
                ("seen_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="drifts", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["category", "kind", "namespace", "name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "category", "kind", "namespace", "name"), name="clusters_drift_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="FormerFlavour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("flavour", models.CharField(max_length=20)),
                ("left_at", models.DateTimeField()),
                (
                    "cleared_at",
                    models.DateTimeField(blank=True, help_text="When nothing of it was found any more.", null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="former_flavours",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["left_at", "id"],
                "constraints": [models.UniqueConstraint(fields=("cluster", "flavour"), name="clusters_former_once")],
            },
        ),
        migrations.CreateModel(
            name="ObservedPod",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uid", models.CharField(max_length=64)),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                (
                    "owner_id",
                    models.CharField(
                        blank=True, help_text="Value of our owner label: the workload's id.", max_length=64
                    ),
                ),
                ("node_name", models.CharField(blank=True, max_length=253)),
                ("pool_name", models.CharField(blank=True, max_length=63)),
                ("phase", models.CharField(max_length=20)),
                (
                    "reason",
                    models.CharField(
                        blank=True, help_text="Why it waits or ended, in the scheduler's word.", max_length=100
                    ),
                ),
                ("message", models.TextField(blank=True)),
                ("priority_class", models.CharField(blank=True, max_length=253)),
                (
                    "priority",
                    models.IntegerField(
                        default=0, help_text="The integer copied at admission; may differ from its class today."
                    ),
                ),
                ("preemptible", models.BooleanField(default=True)),
                ("never_preempts", models.BooleanField(default=False, help_text="Its preemptionPolicy is Never.")),
                (
                    "nominated_node",
                    models.CharField(
                        blank=True,
                        help_text="Where room is made for it while it waits: nominatedNodeName.",
                        max_length=253,
                    ),
                ),
                (
                    "node_selector",
                    models.JSONField(
                        blank=True, default=dict, help_text="While it waits: labels it wants of its node."
                    ),
                ),
                (
                    "tolerations",
                    models.JSONField(blank=True, default=list, help_text="While it waits: taints it bears."),
                ),
                ("queue", models.CharField(blank=True, max_length=253)),
                (
                    "pod_group",
                    models.CharField(blank=True, help_text="KAI's group of the pods it belongs to.", max_length=253),
                ),
                (
                    "device",
                    models.CharField(
                        blank=True, help_text="The shared GPU of its node that it has a part of.", max_length=64
                    ),
                ),
                ("role", models.CharField(blank=True, max_length=63)),
                ("gpu_milli", models.PositiveBigIntegerField(default=0)),
                ("cpu_milli", models.PositiveBigIntegerField(default=0)),
                ("memory_bytes", models.PositiveBigIntegerField(default=0)),
                (
                    "more_requests",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Ephemeral storage in bytes, devices but whole GPUs, claims of devices.",
                    ),
                ),
                ("grace_seconds", models.PositiveIntegerField(default=30)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                (
                    "deletion_at",
                    models.DateTimeField(blank=True, help_text="deletionTimestamp: when its grace ends.", null=True),
                ),
                (
                    "ended_at",
                    models.DateTimeField(
                        blank=True, help_text="When its last container ended, by its node.", null=True
                    ),
                ),
                (
                    "disrupted_at",
                    models.DateTimeField(blank=True, help_text="Transition of DisruptionTarget.", null=True),
                ),
                ("disruption_reason", models.CharField(blank=True, max_length=64)),
                ("disruption_message", models.TextField(blank=True)),
                ("gone_at", models.DateTimeField(blank=True, null=True)),
                ("resource_version", models.CharField(blank=True, max_length=32)),
                ("observed_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="pods", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["owner_id"], name="clusters_pod_owner"),
                    models.Index(fields=["cluster", "gone_at", "node_name"], name="clusters_pod_live"),
                    models.Index(
                        condition=models.Q(("gone_at", None)), fields=["namespace", "name"], name="clusters_pod_name"
                    ),
                    models.Index(
                        condition=models.Q(("gone_at", None), models.Q(("owner_id", ""), _negated=True)),
                        fields=["-created_at", "-id"],
                        name="clusters_pod_newest",
                    ),
                    models.Index(fields=["cluster", "observed_at"], name="clusters_pod_observed"),
                ],
                "constraints": [models.UniqueConstraint(fields=("cluster", "uid"), name="clusters_pod_uid_once")],
            },
        ),
        migrations.CreateModel(
            name="NodePool",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=63)),
                ("label_key", models.CharField(default="rung.dev/node-pool", max_length=317)),
                ("label_value", models.CharField(max_length=63)),
                ("is_default", models.BooleanField(default=False)),
                (
                    "gpu_placement",
                    models.CharField(
                        choices=[("binpack", "Binpack"), ("spread", "Spread")], default="binpack", max_length=10
                    ),
                ),
                (
                    "topology_levels",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Node labels that make its domains of close nodes, widest first.",
                    ),
                ),
                (
                    "topology_revision",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="Counts changes of settings that a scheduler gets and never changes itself.",
                    ),
                ),
                ("created_by", models.CharField(blank=True, max_length=254)),
                ("updated_by", models.CharField(blank=True, max_length=254)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="node_pools", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "-is_default", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="clusters_pool_name_once"),
                    models.UniqueConstraint(
                        fields=("cluster", "label_key", "label_value"), name="clusters_pool_label_once"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("is_default", True)), fields=("cluster",), name="clusters_pool_one_default"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uid", models.CharField(max_length=64)),
                ("name", models.CharField(max_length=253)),
                ("labels", models.JSONField(default=dict)),
                ("gpu_type", models.CharField(blank=True, max_length=100)),
                ("gpu_milli", models.PositiveBigIntegerField(default=0, help_text="Allocatable GPUs in thousandths.")),
                ("cpu_milli", models.PositiveBigIntegerField(default=0, help_text="Allocatable CPU in millicores.")),
                ("memory_bytes", models.PositiveBigIntegerField(default=0)),
                (
                    "max_pods",
                    models.PositiveIntegerField(blank=True, help_text="Allocatable pods; empty: not said.", null=True),
                ),
                (
                    "more_amounts",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Allocatable ephemeral storage in bytes, and devices but whole GPUs.",
                    ),
                ),
                (
                    "taints",
                    models.JSONField(blank=True, default=list, help_text="What keeps pods away: key, value, effect."),
                ),
                ("ready", models.BooleanField(default=True)),
                ("unschedulable", models.BooleanField(default=False)),
                ("resource_version", models.CharField(blank=True, max_length=32)),
                ("joined_at", models.DateTimeField(blank=True, help_text="Its creationTimestamp.", null=True)),
                ("observed_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="nodes", to="clusters.cluster"
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="nodes",
                        to="clusters.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "name"],
                "constraints": [models.UniqueConstraint(fields=("cluster", "name"), name="clusters_node_name_once")],
                "indexes": [models.Index(fields=["name", "id"], name="clusters_node_by_name")],
            },
        ),
        migrations.CreateModel(
            name="ObservedObject",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(help_text="Kind.group, such as Job.batch.", max_length=128)),
                ("uid", models.CharField(max_length=64)),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("name", models.CharField(max_length=253)),
                (
                    "owner_id",
                    models.CharField(
                        blank=True, help_text="The workload's id, for a workload's object.", max_length=64
                    ),
                ),
                ("generation", models.PositiveBigIntegerField(default=0, help_text="Our annotation on it.")),
                ("applied_hash", models.CharField(blank=True, help_text="Our annotation on it.", max_length=64)),
                (
                    "fingerprint",
                    models.CharField(blank=True, help_text="Of what it says now, without status.", max_length=64),
                ),
                (
                    "agreed",
                    models.CharField(blank=True, help_text="Of what it said after our last write.", max_length=64),
                ),
                (
                    "answered",
                    models.BooleanField(
                        db_default=False, default=False, help_text="Its controller has written a status."
                    ),
                ),
                (
                    "scheduling",
                    models.JSONField(
                        default=dict,
                        help_text="Of a workload's object: queue, priority, scheduler, suspend by pointer.",
                    ),
                ),
                ("created_at", models.DateTimeField(blank=True, help_text="Its creationTimestamp.", null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="objects_seen", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["cluster", "kind"], name="clusters_object_kind"),
                    models.Index(fields=["owner_id"], name="clusters_object_owner"),
                ],
                "constraints": [models.UniqueConstraint(fields=("cluster", "uid"), name="clusters_object_uid_once")],
            },
        ),
        migrations.CreateModel(
            name="ObserverSeat",
            fields=[
                ("holder", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("seen_at", models.DateTimeField(help_text="By the database's clock.")),
            ],
        ),
        migrations.CreateModel(
            name="OrphanedObject",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("flavour", models.CharField(help_text="The scheduler it was made for.", max_length=20)),
                ("workload_id", models.CharField(max_length=64)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="left_behind", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "workload_id"), name="clusters_left_behind_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Sample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(help_text="cluster, node-pool, and what the apps above sample.", max_length=16),
                ),
                ("owner", models.CharField(help_text="Its primary key.", max_length=36)),
                ("at", models.DateTimeField(help_text="Start of the minute.")),
                (
                    "grain",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="0: one of many; else first of 10 min, hour, day."
                    ),
                ),
                ("figures", models.JSONField(help_text="Node pool, or * for all of them, to names and numbers.")),
                (
                    "cluster",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="samples",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["cluster", "grain", "at"], name="clusters_sample_age")],
                "constraints": [models.UniqueConstraint(fields=("kind", "owner", "at"), name="clusters_sample_once")],
            },
        ),
        migrations.CreateModel(
            name="SandboxObject",
            fields=[
                ("uid", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        help_text="Kind.group, such as Job.batch; the core group is empty: Pod.", max_length=128
                    ),
                ),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("managed", models.BooleanField(default=False, help_text="Carries our managed-by label.")),
                ("manifest", models.JSONField()),
                ("version", models.PositiveBigIntegerField(help_text="resourceVersion of the last write.")),
                (
                    "created_version",
                    models.PositiveBigIntegerField(default=0, help_text="resourceVersion of the first write."),
                ),
                (
                    "deleted",
                    models.BooleanField(default=False, help_text="A tombstone, so that a watch sees the deletion."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sandbox_objects",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["cluster", "kind", "version"], name="clusters_sandbox_changes")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted", False)),
                        fields=("cluster", "kind", "namespace", "name"),
                        name="clusters_sandbox_object_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SyncRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("succeeded", "Succeeded"),
                            ("partial", "Partial"),
                            ("failed", "Failed"),
                        ],
                        default="running",
                        max_length=10,
                    ),
                ),
                (
                    "trigger",
                    models.CharField(default="sweep", help_text="sweep, wake-up, manual, dry-run.", max_length=20),
                ),
                ("dry_run", models.BooleanField(default=False)),
                (
                    "scope",
                    models.TextField(blank=True, help_text="Owners it was about, one a line; empty: everything."),
                ),
                ("generation", models.PositiveBigIntegerField(default=0)),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("listed", models.PositiveIntegerField(default=0)),
                ("written", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveIntegerField(default=0)),
                ("error_code", models.CharField(blank=True, max_length=64)),
                ("error", models.TextField(blank=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="sync_runs", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-started_at", "-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("dry_run", False), ("state", "running")),
                        fields=("cluster",),
                        name="clusters_sync_one_live",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SyncOutcome",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("action", models.CharField(help_text="create, update, replace, delete, conflict.", max_length=10)),
                ("kind", models.CharField(max_length=128)),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("name", models.CharField(max_length=253)),
                (
                    "owner",
                    models.CharField(
                        blank=True, help_text="Whose object it is: the value of our label.", max_length=100
                    ),
                ),
                ("ok", models.BooleanField()),
                ("code", models.CharField(blank=True, max_length=64)),
                ("message", models.TextField(blank=True)),
                ("changes", models.JSONField(default=list, help_text="Changed fields: [path, observed, desired].")),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="outcomes", to="clusters.syncrun"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WorkerSlot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveSmallIntegerField()),
                ("holder", models.CharField(blank=True, help_text="Random id of the task that has it.", max_length=36)),
                ("expires_at", models.DateTimeField(help_text="By the database's clock.")),
                (
                    "serving",
                    models.PositiveBigIntegerField(default=0, help_text="Project that it works for now; 0: none."),
                ),
                (
                    "cursor",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Project that was served last: the next turn begins behind it."
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="worker_slots", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "number"), name="clusters_worker_slot_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterCredential",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="credential",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("server", models.CharField(max_length=500)),
                ("tls_server_name", models.CharField(blank=True, max_length=253)),
                ("ca", models.TextField(blank=True, help_text="PEM; empty: the authorities of the system.")),
                ("insecure", models.BooleanField(default=False, help_text="The server's certificate is not checked.")),
                ("kind", models.CharField(choices=[("token", "Token"), ("certificate", "Certificate")], max_length=12)),
                ("sealed", models.TextField(editable=False)),
                ("key_id", models.CharField(editable=False, help_text="Which key sealed it.", max_length=16)),
                ("version", models.PositiveIntegerField(default=1, help_text="Grows with every change.")),
                (
                    "expires_at",
                    models.DateTimeField(blank=True, help_text="When the credential ends, if it says so.", null=True),
                ),
                ("changed_at", models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.CreateModel(
            name="MetricsSource",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="metrics_source",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("server", models.CharField(max_length=500)),
                ("ca", models.TextField(blank=True, help_text="PEM; empty: the authorities of the system.")),
                (
                    "metric",
                    models.CharField(
                        default="DCGM_FI_DEV_GPU_UTIL",
                        max_length=128,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-zA-Z_:][a-zA-Z0-9_:]{0,127}\\Z", "Letters, digits, underscores and colons."
                            )
                        ],
                    ),
                ),
                (
                    "sealed",
                    models.TextField(blank=True, editable=False, help_text="Its token; empty: it asks for none."),
                ),
                (
                    "key_id",
                    models.CharField(blank=True, editable=False, help_text="Which key sealed it.", max_length=16),
                ),
                ("changed_at", models.DateTimeField(auto_now=True)),
                ("read_at", models.DateTimeField(blank=True, help_text="When it last answered.", null=True)),
                (
                    "pods",
                    models.PositiveIntegerField(default=0, help_text="For how many of our pods it knew GPUs then."),
                ),
                (
                    "error",
                    models.CharField(
                        blank=True, help_text="Why it could not be read; empty: it could.", max_length=500
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ObserverLease",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="observer_lease",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("holder", models.CharField(max_length=100)),
                ("expires_at", models.DateTimeField()),
                ("versions", models.JSONField(default=dict, help_text="Last resourceVersion seen per kind.")),
            ],
        ),
        migrations.CreateModel(
            name="SandboxClock",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="sandbox_clock",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("speed", models.PositiveIntegerField(default=1)),
                (
                    "speed_since",
                    models.DateTimeField(blank=True, help_text="Before it time passed as it really does.", null=True),
                ),
                ("version", models.PositiveBigIntegerField(default=1)),
                ("ticked_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="GpuUse",
            fields=[
                (
                    "pod",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="gpu_use",
                        serialize=False,
                        to="clusters.observedpod",
                    ),
                ),
                ("percent", models.PositiveSmallIntegerField()),
                ("idle_since", models.DateTimeField(blank=True, null=True)),
                ("measured_at", models.DateTimeField()),
            ],
        ),
    ]
