"""PDE: the constants of an equation that a field obeys, from the equation's text."""

from xspline.labels.field_base import ABOUT_EQUATIONS as _ABOUT_EQUATIONS
from xspline.pde.discovery.discover import discover as discover
from xspline.pde.recovery import constrain as constrain
from xspline.pde.recovery import recover as recover

_ABOUT_EQUATIONS.update(recover=recover, constrain=constrain, discover=discover)  # for the methods of fields
