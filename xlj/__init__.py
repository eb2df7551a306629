"""xlj: cross-lingual encoder pretraining in JAX (ERNIE-M, XLM-E, XLM-Align, MetaXLM, XLM, XLM-R)."""

__version__ = "0.1.0"
