"""Families of penalties that a search chooses from."""
