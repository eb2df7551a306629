"""Distillation of sentence vectors from a teacher whose vectors are stored with the rows."""
