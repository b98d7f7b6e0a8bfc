"""Solvers of systems that are products over coordinates, and products of vectors with pair arrays of any kind."""
