"""SciPy's functions of arrays on the GPU."""

from scipy import linalg

from tests.duck import of_arrays

solve_triangular = of_arrays(linalg.solve_triangular)
