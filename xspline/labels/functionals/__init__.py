"""Linear functionals of a field: means, integrals, weighted sums, anomalies, cell means, with their errors."""
