"""Loops compiled by numba, imported at the first call that needs them."""
