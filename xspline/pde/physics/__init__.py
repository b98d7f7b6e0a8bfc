"""Equations with known constants as penalties."""
