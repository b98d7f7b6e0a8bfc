"""Measurements: `python -m benchmarks list`, `python -m benchmarks NAME [--quick]`."""
