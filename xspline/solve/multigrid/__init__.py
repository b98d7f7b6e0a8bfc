"""Conjugate gradients with multigrid over nested spline spaces."""
