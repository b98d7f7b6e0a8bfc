"""Direct solvers: Cholesky factorisations of G + Λ, banded, by nested dissection and dense."""
