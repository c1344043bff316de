"""The helpers of the command line under their former name, for the tests that have not moved."""

from support.command_line import OWN_MODEL, Outcome, call, write_graphs

__all__ = ["OWN_MODEL", "Outcome", "call", "write_graphs"]
