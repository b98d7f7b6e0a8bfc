"""Coordinates, bases and their tensor product: everything about the functions, nothing about data."""

from xspline.spaces.axis import Axis as Axis
from xspline.spaces.bases import BSpline as BSpline
from xspline.spaces.bases import Fourier as Fourier
from xspline.spaces.bases import Polynomial as Polynomial
from xspline.spaces.bases import as_basis as as_basis
from xspline.spaces.basis import Basis as Basis
from xspline.spaces.basis import Union as Union
from xspline.spaces.bspline import Arrow as Arrow
from xspline.spaces.features import Features as Features
from xspline.spaces.features import Global as Global
from xspline.spaces.regression.bases import PiecewiseLinear as PiecewiseLinear
from xspline.spaces.regression.bases import Regressors as Regressors
from xspline.spaces.regression.bases import Step as Step
from xspline.spaces.space import Frame as Frame
from xspline.spaces.space import Space as Space
