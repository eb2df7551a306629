"""The pictures of the documentation, drawn by code: `python docs/make_pictures.py`."""
