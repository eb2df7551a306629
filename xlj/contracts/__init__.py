"""Checks the shapes and dtypes of the arguments of functions, while JAX traces the functions."""
