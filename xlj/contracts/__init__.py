"""Contracts of functions of arrays, checked while JAX traces them."""
