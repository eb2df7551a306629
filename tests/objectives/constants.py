"""Options of an objective with other constants, so that tests see that each constant is used."""

import dataclasses


def with_constants(options, **constants):
    """Returns a copy of options with other values of class attributes."""
    changed = type(type(options).__name__, (type(options),), constants)
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return changed(**values)
