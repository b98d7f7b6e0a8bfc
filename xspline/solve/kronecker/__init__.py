"""Solvers of systems that are products over coordinates."""
