"""Direct solvers: banded and dense Cholesky factorisations of G + Λ."""
