"""Contracts of functions of arrays, checked as JAX traces them."""
