"""The choice of the strengths of a roughness penalty from the sums."""
