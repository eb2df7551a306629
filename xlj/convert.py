"""Converts models from and to Hugging Face folders; extends, merges and widens models.

    python -m xlj.convert import --source=DIR --output=DIR
    python -m xlj.convert export --checkpoint=DIR --output=DIR
    python -m xlj.convert extend --checkpoint=DIR --text=new.txt --pieces=2000 --output=DIR
    python -m xlj.convert merge --models DIR DIR --output=DIR
    python -m xlj.convert widen --checkpoint=DIR --layers=28 --hidden=1024 --heads=16 --output=DIR

The output folder appears only when it is complete. More: docs/convert.md
"""

import os
from argparse import Namespace

from xlj.cli import command, conversion_flags
from xlj.config import ConfigError
from xlj.config.paths import local_path


@command.entry("convert", __doc__, conversion_flags.add)
def main(flags: Namespace) -> None:
    """Writes the converted model to a new folder."""
    output = local_path("--output", flags.output).absolute()
    if os.path.lexists(output):
        raise ConfigError(f"--output={flags.output} exists already; name a new folder")
    try:
        if flags.action == "import":
            from xlj.conversion.importing import import_folder

            import_folder(flags.source.expanduser(), output)
        elif flags.action == "export":
            from xlj.conversion.exporting import export

            export(flags.checkpoint, output, flags.layer, flags.pooling or "")
        elif flags.action == "merge":
            from xlj.conversion.merging import Ties, merge

            options = {name: getattr(flags, name) for name in ("share", "scale")}
            options = {name: value for name, value in options.items() if value is not None}
            if options and not flags.base:
                raise ConfigError(f"--{next(iter(options))} is an option of TIES; set --base too")
            ties = Ties(flags.base, **options) if flags.base else None
            merge(flags.models, output, flags.weights or (), ties)
        elif flags.action == "widen":
            from xlj.conversion.widening import widen

            sizes = {name: getattr(flags, name) for name in conversion_flags.SIZES}
            sizes = {name: size for name, size in sizes.items() if size is not None}
            widen(flags.checkpoint, sizes, output, flags.copied)
        else:
            if flags.pieces < 1 or not (flags.share is None or 0 < flags.share <= 1):
                raise ConfigError("--pieces must be at least 1, and --share above 0 and at most 1")
            from xlj.conversion.extending import extend_checkpoint

            text, pieces, share = flags.text, flags.pieces, flags.share
            extend_checkpoint(flags.checkpoint, text, pieces, share, output)
    except OSError as error:  # of the output, since errors of inputs are ConfigErrors
        raise ConfigError(f"--output={flags.output} cannot be written: {error}") from None


if __name__ == "__main__":
    raise SystemExit(main())
