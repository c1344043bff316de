"""Random changes to the edges of a graph: the law, the draws, the stream of samples, and hashed groups."""

from flipproof.checks import checked_seed
from flipproof.noise.groups import HASH_VERSION, EdgeGroups
from flipproof.noise.law import EdgeNoise, Neighbours, NoisyBatch, SlotLists, keyed_draws, noisy_states
from flipproof.noise.stream import BLOCK, STREAM_VERSION, SampleStream

__all__ = [
    "BLOCK",
    "HASH_VERSION",
    "STREAM_VERSION",
    "EdgeGroups",
    "EdgeNoise",
    "Neighbours",
    "NoisyBatch",
    "SampleStream",
    "SlotLists",
    "checked_seed",
    "keyed_draws",
    "noisy_states",
]
