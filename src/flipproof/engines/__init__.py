"""Where work is done: this process, all cores of this machine, a Ray cluster."""

from flipproof.engines.engine import Engine, GraphTask, ThisProcess
from flipproof.engines.ray_cluster import RayCluster
from flipproof.engines.this_machine import Processes, Threads, cores, local_engine

__all__ = ["Engine", "GraphTask", "Processes", "RayCluster", "ThisProcess", "Threads", "cores", "local_engine"]
