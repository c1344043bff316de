"""Where work is done: this process, all cores of this machine, a Ray cluster."""

from flipproof.engines.pool import Engine, Processes, ThisProcess, cores, local_engine
from flipproof.engines.ray_cluster import RayCluster

__all__ = ["Engine", "Processes", "RayCluster", "ThisProcess", "cores", "local_engine"]
