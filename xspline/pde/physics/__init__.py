"""Fields that know an equation: held to it, or drawn to it by a penalty."""
