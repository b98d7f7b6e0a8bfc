"""Benchmarks that `asv` follows over commits (`asv.conf.json`): each takes seconds, and none needs a file."""
