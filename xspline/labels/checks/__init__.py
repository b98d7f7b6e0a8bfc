"""What residuals of a fit tell of its model, and fits that gross errors do not spoil."""
