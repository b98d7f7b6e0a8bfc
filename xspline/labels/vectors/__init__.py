"""Fields of the two components of a vector."""
