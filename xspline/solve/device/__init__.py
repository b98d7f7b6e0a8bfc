"""On a GPU: the backend of the multigrid V-cycle, and the dense Cholesky factorisation."""
