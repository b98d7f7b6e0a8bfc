"""Labels: where xarray lives. What goes in is read here, and what comes out is named here."""
