"""Penalties that a user passes: ridge, roughness, Sobolev seminorms, and roughness in space and in time."""
