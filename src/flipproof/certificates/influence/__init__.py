"""The bound from influences ("influence"): the same votes, a larger radius.

The bound from the vote share alone assumes the worst classifier that has this share: one that looks at nothing but the
attacked slots. The votes show more: every sample tells which slots the noise flipped. How often the top class was voted
when a slot, or a pair of slots, was flipped bounds what an attack on them can do. No model call is needed.

- :mod:`lead_test`: attacks of one size, and the tests of the lead after an attack on a fixed set.
- :mod:`statistics`: counts of votes and flips; :mod:`bit_counts`: its compiled loops.
- :mod:`worst_set`: the set for which a test's statistic is least.
- :mod:`climb`: from votes to a certificate.

Theory: ``docs/influence.md``.
"""

from flipproof.certificates.influence.climb import choose_order, from_votes

__all__ = ["choose_order", "from_votes"]
