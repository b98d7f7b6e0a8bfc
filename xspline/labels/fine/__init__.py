"""The fine field of a bare fit: what its terms leave of the values, by what neighbours tell."""
