"""Where blocks of samples are computed: this process, all cores of this machine, a Ray cluster."""

from __future__ import annotations

from flipproof.engines.local import Processes, Threads, cores, local_engine, one_thread
from flipproof.engines.ray_cluster import RayCluster
from flipproof.sampling import ThisProcess

__all__ = ["Processes", "RayCluster", "ThisProcess", "Threads", "cores", "local_engine", "one_thread"]
