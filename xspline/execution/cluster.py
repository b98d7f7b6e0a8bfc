"""The client that Dask would compute with, and results that leave its workers early."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

import dask.base

from xspline.execution.graph import Graph, Key


def has_client() -> bool:
    """Return whether computations go to a cluster; does not import distributed to find out."""
    if "distributed" not in sys.modules:
        return False
    from distributed import default_client

    try:
        default_client()
    except ValueError:
        return False
    return True


def client_of_dask() -> Any:
    """Return the client that Dask would compute with; None without one, and in a task, which must not wait."""
    client = getattr(dask.base.get_scheduler(), "__self__", None)
    if client is None or not hasattr(client, "scheduler_info"):
        return None
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return client
    return None


def workers_of(client: Any) -> list[dict[str, Any]]:
    """Return what the scheduler knows of each worker; some versions of distributed name five unless asked for all."""
    asked = {"n_workers": -1} if "n_workers" in inspect.signature(client.scheduler_info).parameters else {}
    return list(client.scheduler_info(**asked)["workers"].values())


def as_made(client: Any, graph: Graph, keys: Sequence[Key]) -> list[Any]:
    """Return the values of some keys; each leaves its worker as soon as it is made, while others are."""
    from distributed import as_completed

    futures = client.get(graph, list(keys), sync=False)
    places = {future.key: place for place, future in enumerate(futures)}
    made = as_completed(futures, loop=client.loop, with_results=True)
    del futures  # a worker lets go of what nobody refers to
    found: list[Any] = [None] * len(places)
    for future, value in made:
        if future.cancelled():
            raise value
        found[places[future.key]] = value
        del future
    return found
