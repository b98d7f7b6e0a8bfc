"""CUDA C++ for sweeps over grids on a GPU, and how it is launched."""
