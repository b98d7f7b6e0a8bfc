"""Values in stores, decoded by ourselves."""
