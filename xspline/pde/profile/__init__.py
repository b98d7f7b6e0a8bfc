"""Profile: an equation as a hard constraint on the field, and its constants at the information bound."""
