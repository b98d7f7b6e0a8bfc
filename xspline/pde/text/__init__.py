"""Equations as text: names, syntax trees, terms, units."""
