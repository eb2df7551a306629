"""Reference implementations in NumPy float64, written from the papers; they do not import xlj.

Parameters are nested dicts in the layout of xlj. `model` is any object that has the fields of xlj's
model config.
"""
