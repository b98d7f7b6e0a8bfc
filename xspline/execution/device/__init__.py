"""Blocks on a GPU: which device, arrays there and back."""
