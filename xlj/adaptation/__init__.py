"""Adapts a model to more languages: adds pieces, trains, evaluates, reports and exports."""
