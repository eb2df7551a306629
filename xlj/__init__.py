"""xlj: cross-lingual encoder pretraining in JAX (XLM-R, ERNIE-M, XLM-E, XLM-Align, MetaXLM)."""

__version__ = "0.1.0"
