"""Which terms an equation has: candidates, the best sets of them, ranked models."""
