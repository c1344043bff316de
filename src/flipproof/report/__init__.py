"""Figures and pages made from certificates."""
