"""The same algorithms on a GPU."""
