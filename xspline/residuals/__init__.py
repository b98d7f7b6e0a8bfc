"""What residuals tell of errors: arrays only."""
