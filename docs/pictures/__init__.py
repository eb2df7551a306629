"""Draws the pictures of the documentation (`python docs/make_pictures.py`)."""
