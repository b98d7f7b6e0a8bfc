"""Reading: from the labels of xarray objects to coordinates, bases, holders and the sources of the data."""
