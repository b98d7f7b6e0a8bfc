"""PDE: the constants of an equation that a field obeys, from the equation's text."""

from xspline.labels.field_base import Equations as _Equations
from xspline.pde.discovery.discover import discover as discover
from xspline.pde.recovery import constrain as constrain
from xspline.pde.recovery import recover as recover

_Equations(recover, constrain, discover).register()  # for the methods of fields
