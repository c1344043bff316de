"""A Ray cluster: tasks wherever a node has a core free, results streamed back, lost ones done again by Ray."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from flipproof.engines.engine import GraphTask, in_worker
from flipproof.errors import InputError, MissingExtraError

__all__ = ["RayCluster", "installed"]

_RETRIES = 5  # of a task whose worker or node was lost
_AHEAD = 2  # bundles of tasks under way for each core, so that none waits for the driver
_SECONDS, _TOGETHER = 0.1, 16  # a bundle is to take so long, and has no more tasks than this


def installed() -> Any:
    """Ray, or how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--engine ray needs Ray, which is not installed (pip install ray)") from error
    return ray


class RayCluster:
    """A cluster that runs already, or one on this machine that ends with the ``with`` block.

    Where the process has called ``ray.init`` itself, that cluster is used.

    Model and graphs are put into the object store once and fetched by every node that needs them.

    Args:
        address: As for ``ray.init``: ``auto``, ``host:6379``, ``ray://host:10001``; ``None`` starts a cluster here.
        workers: Cores of a cluster that is started here; by default all.
    """

    def __init__(self, address: str | None = None, *, workers: int | None = None) -> None:
        self.address, self._workers = address, workers
        self._ray = installed()

    def __enter__(self) -> RayCluster:
        self._ours = not self._ray.is_initialized()
        if not self._ours:
            return self
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if self.address is None:
            options |= {"num_cpus": self._workers, "include_dashboard": False}
        # a module beside which the command was started is found by the workers too
        options["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}}
        try:
            self._ray.init(self.address, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                f"no Ray cluster answers at {self.address or 'this machine'}: {reason} (start one with ray start --head)"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            self._ray.shutdown()

    def __str__(self) -> str:
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        return f"a Ray cluster of {nodes} node{'s' * (nodes != 1)} and {self.cores} cores"

    @property
    def cores(self) -> int:
        """Cores of all nodes."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`flipproof.engines.Engine`."""
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_do)
        kept, graphs = ray.put(work), dict[int, Any]()
        source, under_way = iter(tasks), dict[Any, list[Any]]()
        exhausted, together = False, 1
        try:
            while True:
                waits = False
                while len(under_way) < _AHEAD * self.cores and not exhausted and not waits:
                    bundle: list[Any] = []
                    while len(bundle) < together and not exhausted and not waits:
                        task = next(source, _NOTHING)
                        exhausted, waits = task is _NOTHING, task is None
                        if not exhausted and not waits:
                            bundle.append(task)
                    if bundle:
                        sent = [self._packed(task, graphs) for task in bundle]
                        under_way[remote.remote([kept], sent)] = bundle
                if not under_way:
                    assert exhausted, "no result is under way that could be waited for"
                    return
                ready, _ = ray.wait(list(under_way))
                for reference in ready:
                    seconds, results = self._fetched(reference)
                    # short tasks travel together, else the driver could not feed many cores
                    together = max(1, min(_TOGETHER, int(_SECONDS * len(results) / max(seconds, 1e-9))))
                    yield from zip(under_way.pop(reference), results, strict=True)
        finally:
            for reference in under_way:
                ray.cancel(reference)

    def _packed(self, task: Any, graphs: dict[int, Any]) -> Any:
        """The task as it travels: with its graph's place in the object store, into which the graph is put once."""
        if not isinstance(task, GraphTask):
            return None, task
        if task.index not in graphs:
            while len(graphs) > _AHEAD * _TOGETHER * self.cores:  # the oldest are done
                graphs.pop(next(iter(graphs)))
            graphs[task.index] = self._ray.put(task.graph)
        return graphs[task.index], (task.index, task.request)

    def _fetched(self, reference: Any) -> Any:
        """A result; what a task raised is raised here as it was."""
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except exceptions.RayTaskError as error:
            raise error.cause from None
        except exceptions.RayError as error:
            raise InputError(
                f"the cluster lost a task {_RETRIES + 1} times: {next(iter(str(error).splitlines()), '')} (out of memory? what "
                "is finished is kept: run the same command again)"
            ) from error


_NOTHING: Any = object()
_works: dict[str, Callable[[Any], Any]] = {}


def _do(kept: list[Any], sent: list[tuple[Any, Any]]) -> tuple[float, list[Any]]:
    """In a worker of the cluster: seconds and results. The work is fetched once and stays."""
    import ray

    (reference,) = kept
    if reference.hex() not in _works:
        _works.clear()
        work = ray.get(reference)
        in_worker(work).__enter__()  # it is left when the process ends
        _works[reference.hex()] = work
    work, started = _works[reference.hex()], time.perf_counter()
    results = [work(task if graph is None else GraphTask(task[0], ray.get(graph), task[1])) for graph, task in sent]
    return time.perf_counter() - started, results
