"""Experiments made of everything below: the paper, a benchmark, the choice of a defence."""
