"""A Ray cluster: tasks wherever a node has a core free, results streamed back, lost ones done again by Ray."""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import Executor, Future
from typing import Any

from flipproof.engines.pool import Outcome, Pool, Work, do_bundle, install, works
from flipproof.errors import InputError, MissingExtraError

_RETRIES = 5  # of a task whose worker or node was lost


def installed() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--engine ray needs Ray, which is not installed (pip install ray)") from error
    return ray


class RayCluster(Pool):
    """A cluster that runs already, or one on this machine that ends with the ``with`` block.

    Where the process has called ``ray.init`` itself, that cluster is used. The model is put into the object store once and
    fetched by every node that needs it.

    Args:
        address: As for ``ray.init``: ``auto``, ``host:6379``, ``ray://host:10001``; ``None`` starts a cluster here.
        workers: Cores of a cluster that is started here; by default all.
    """

    def __init__(self, address: str | None = None, *, workers: int | None = None) -> None:
        self.address, self._started, self._ray = address, workers, installed()

    def __enter__(self) -> RayCluster:
        self._ours = not self._ray.is_initialized()
        if not self._ours:
            return self
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if self.address is None:
            options |= {"num_cpus": self._started, "include_dashboard": False}
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

    def __exit__(self, *error: object) -> None:
        if self._ours:
            self._ray.shutdown()

    def __str__(self) -> str:
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        return f"a Ray cluster of {nodes} node{'s' * (nodes != 1)} and {self.workers} cores"

    @property
    def workers(self) -> int:  # type: ignore[override]
        return int(self._ray.cluster_resources().get("CPU", 1))

    def start(self, work: Work) -> Executor:
        return _RayExecutor(self._ray, work)


class _RayExecutor(Executor):
    def __init__(self, ray: Any, work: Work) -> None:
        self._ray, self._work = ray, ray.put(work)
        self._remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_do)
        self._references = dict[Future[Outcome], Any]()  # results are held no longer than needed

    def submit(self, bundle: list[Any]) -> Future[Outcome]:  # type: ignore[override]
        reference, future = self._remote.remote([self._work], bundle), Future[Outcome]()
        self._references[future] = reference
        reference.future().add_done_callback(lambda done: self._hand_over(done, future))
        return future

    def _hand_over(self, done: Future[Outcome], future: Future[Outcome]) -> None:
        self._references.pop(future, None)
        error = done.exception()
        if error is None:
            future.set_result(done.result())
            return
        sentence = f"the cluster lost a task {_RETRIES + 1} times: {next(iter(str(error).splitlines()), '')}"
        future.set_exception(InputError(f"{sentence} (out of memory? what is finished is kept: run the command again)"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for reference in list(self._references.values()):
            self._ray.cancel(reference)


def _do(kept: list[Any], bundle: list[Any]) -> Outcome:
    """In a worker of the cluster. The work is fetched once and stays."""
    import ray

    name = kept[0].hex()
    if name not in works:
        install(ray.get(kept[0]), name)
    return do_bundle(bundle, name)
