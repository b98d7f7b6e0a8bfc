"""Functions that are given: indices, steps and broken lines."""
