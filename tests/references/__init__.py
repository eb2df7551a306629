"""Objectives in plain NumPy, float64, written from the papers; nothing here imports xlj.

Parameters are nested dicts as xlj lays them out; `model` is anything with the fields of its config.
"""
