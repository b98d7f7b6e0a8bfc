"""Sums of groups of several coefficient axes, whose rows are sorted by cell: on the host, and on a device."""
