"""The bound from influences ("influence"): the same votes, a larger radius, without a model call. Theory: ``docs/influence.md``.

How often the top class was voted when a slot, or a pair of slots, was flipped bounds what an attack on them can do.
"""

from flipproof.certificates.influence.climb import choose_order, from_votes

__all__ = ["choose_order", "from_votes"]
