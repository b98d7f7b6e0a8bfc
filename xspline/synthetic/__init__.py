"""Fields with a known truth: solutions of four equations that can be evaluated anywhere, and a
synthetic ocean.
"""

from __future__ import annotations

from xspline.synthetic.linear import diffusion as diffusion
from xspline.synthetic.linear import heat as heat
from xspline.synthetic.linear import wave as wave
from xspline.synthetic.ocean import sea_surface_temperature as sea_surface_temperature
from xspline.synthetic.pseudospectral import burgers as burgers
from xspline.synthetic.truth import Truth as Truth
