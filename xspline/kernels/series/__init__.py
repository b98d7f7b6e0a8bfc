"""Sums over pairs of observations that follow each other, of errors that remember."""
