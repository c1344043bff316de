"""Random changes to edges and node features: the laws, the draws, the streams of samples, and hashed groups."""

from flipproof.checks import checked_seed
from flipproof.noise.feature_law import BitNoise, FeatureNoise, LabelNoise, feature_noise_from
from flipproof.noise.groups import HASH_VERSION, EdgeGroups
from flipproof.noise.law import EdgeNoise, Neighbours, NoisyBatch, SlotLists, keyed_draws, noisy_states
from flipproof.noise.stream import BLOCK, STREAM_VERSION, SampleStream

__all__ = [
    "BLOCK",
    "HASH_VERSION",
    "STREAM_VERSION",
    "BitNoise",
    "EdgeGroups",
    "EdgeNoise",
    "FeatureNoise",
    "LabelNoise",
    "Neighbours",
    "NoisyBatch",
    "SampleStream",
    "SlotLists",
    "checked_seed",
    "feature_noise_from",
    "keyed_draws",
    "noisy_states",
]
