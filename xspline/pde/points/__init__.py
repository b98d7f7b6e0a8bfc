"""Constants by least squares over points, with exact or differenced derivatives (paper, section 3.3)."""
