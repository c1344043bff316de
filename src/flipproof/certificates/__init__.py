"""Certificates: from votes to a radius. Pure mathematics on numpy and scipy; no torch."""
