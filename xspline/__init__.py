"""xspline: smooth, differentiable fields through any amount of labelled data, from sums that add up exactly.

The method is that of Naveen Mysore, "Recovering Governing Dynamics from Distributed Observations via Exact Spline
Merging", which docstrings call "the paper".
"""

from __future__ import annotations

from xspline import accessor as _accessor
from xspline import synthetic
from xspline.execution import ClusterLostError, Plan, WorkerMemoryError
from xspline.fitting import constrain, discover, fit, plan, recover, space, statistics
from xspline.labels.derivatives import EARTH_RADIUS
from xspline.labels.field import Field, open_field
from xspline.labels.field_base import Draws
from xspline.labels.merging import merge_models
from xspline.labels.read.memory import AR1
from xspline.labels.report.check import FitCheck
from xspline.labels.report.disclosure import Disclosure
from xspline.labels.statistics import Statistics, merge, open_statistics
from xspline.labels.storage.tables import from_dataframe
from xspline.labels.vectors.flow import divergence, vorticity
from xspline.pde.physics.constrained import ConstrainedField, EquationField
from xspline.pde.physics.equation_penalty import Physics
from xspline.solve import (
    ConvergenceError,
    FitWarning,
    Penalty,
    Ridge,
    Roughness,
    SingularSystemError,
    Sobolev,
    SpaceTime,
    TooLargeError,
)
from xspline.spaces import Axis, Basis, BSpline, Fourier, PiecewiseLinear, Polynomial, Regressors, Space, Step

__version__ = "0.1.0"

__all__ = [
    "AR1",
    "EARTH_RADIUS",
    "Axis",
    "BSpline",
    "Basis",
    "ClusterLostError",
    "ConstrainedField",
    "ConvergenceError",
    "Disclosure",
    "Draws",
    "EquationField",
    "Field",
    "FitCheck",
    "FitWarning",
    "Fourier",
    "Penalty",
    "Physics",
    "PiecewiseLinear",
    "Plan",
    "Polynomial",
    "Regressors",
    "Ridge",
    "Roughness",
    "SingularSystemError",
    "Sobolev",
    "Space",
    "SpaceTime",
    "Statistics",
    "Step",
    "TooLargeError",
    "WorkerMemoryError",
    "constrain",
    "discover",
    "divergence",
    "fit",
    "from_dataframe",
    "merge",
    "merge_models",
    "open_field",
    "open_statistics",
    "plan",
    "recover",
    "space",
    "statistics",
    "synthetic",
    "vorticity",
]

_accessor.register()
