"""Experiments made of everything below: the paper's reproduction, benchmarks, tuning."""
