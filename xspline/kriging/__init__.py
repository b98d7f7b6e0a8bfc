"""What neighbours tell: a Gaussian field at two scales, predicted at any place from the observations around it."""
