"""Distillation from a monolingual teacher, a baseline of MetaXLM."""
