"""Coordinates, bases and their tensor product: everything about the functions, nothing about data."""

from .axis import Axis as Axis
from .bases import BSpline as BSpline
from .bases import Fourier as Fourier
from .bases import Polynomial as Polynomial
from .basis import Basis as Basis
from .basis import as_basis as as_basis
from .features import Features as Features
from .features import Global as Global
from .space import Frame as Frame
from .space import Space as Space
from .union import Union as Union
