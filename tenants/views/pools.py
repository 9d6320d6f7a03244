"""Node pools of a cluster: the nodes that carry one label. For platform admins."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from clusters.flavours import flavour_for
from clusters.models import Cluster, NodePool
from clusters.selectors import level_rows
from clusters.services.estate import create_node_pool, delete_node_pool, update_node_pool
from portal.core.copying import copies_of, copies_of_act
from portal.core.errors import RungError
from portal.core.http import actor_of
from portal.core.pageforms import sent
from tenants.forms import LEVELS, PoolChangeForm, PoolForm
from tenants.permissions import Verb, require
from tenants.twins import changed_pool, new_pool, pool_gone


@login_required
@require_http_methods(["GET", "POST"])
def pools(request: HttpRequest, name: str) -> HttpResponse:
    """The pools, and one more."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    cluster = get_object_or_404(Cluster, name=name)
    form = PoolForm(sent(request), flavour=flavour_for(cluster.flavour))
    if shown := copies_of(request, form, lambda: new_pool(cluster, form.cleaned_data)):
        return shown
    if request.method == "POST" and form.is_valid():
        try:
            pool = create_node_pool(cluster=cluster, actor=actor, **form.cleaned_data)
        except RungError as error:
            form.show(error, LEVELS)
        else:
            messages.success(request, _("The node pool %(name)s is there.") % {"name": pool.name})
            return redirect("tenants:pools", name=cluster.name)
    rows = list(cluster.node_pools.all())
    levels = level_rows(rows)
    context = {"cluster": cluster, "pools": [(each, levels.get(each.pk, [])) for each in rows], "form": form}
    return render(request, "tenants/pools.html", context, status=422 if form.errors else 200)


@login_required
@require_http_methods(["GET", "POST"])
def change(request: HttpRequest, name: str, pool: str) -> HttpResponse:
    """The label that makes a pool, its topology levels, whether it is the default."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    row = get_object_or_404(NodePool.objects.select_related("cluster"), cluster__name=name, name=pool)
    form = PoolChangeForm(sent(request), pool=row, flavour=flavour_for(row.cluster.flavour))
    if shown := copies_of(request, form, lambda: changed_pool(row, form.cleaned_data)):
        return shown
    levels = level_rows([row]).get(row.pk, [])
    if request.method == "POST" and form.is_valid():
        try:
            update_node_pool(pool=row, actor=actor, **form.cleaned_data)
        except RungError as error:
            form.show(error, LEVELS)
        else:
            messages.success(request, _("The node pool %(name)s is changed.") % {"name": row.name})
            return redirect("tenants:pools", name=name)
    context = {"cluster": row.cluster, "pool": pool, "form": form, "levels": levels}
    return render(request, "tenants/pool.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def remove(request: HttpRequest, name: str, pool: str) -> HttpResponse:
    """Remove a pool that no quota names."""
    actor = actor_of(request)
    require(actor, Verb.MANAGE_CLUSTERS)
    row = get_object_or_404(NodePool, cluster__name=name, name=pool)
    if copied := copies_of_act(request, pool_gone(row)):
        return copied
    delete_node_pool(pool=row, actor=actor)
    messages.success(request, _("The node pool %(name)s is removed.") % {"name": pool})
    return redirect("tenants:pools", name=name)
