"""Takes models in from Hugging Face folders, and out to them; extends, merges and widens them.

    python -m xlj.convert import --source=DIR --output=DIR
    python -m xlj.convert export --checkpoint=DIR --output=DIR
    python -m xlj.convert extend --checkpoint=DIR --text=new.txt --pieces=2000 --output=DIR
    python -m xlj.convert merge --models DIR DIR --output=DIR
    python -m xlj.convert widen --checkpoint=DIR --layers=28 --hidden=1024 --heads=16 --output=DIR

Nothing is written unless all of it can be. docs/convert.md tells more.
"""

import os
from argparse import Namespace

from xlj.cli import command, conversion_flags
from xlj.config import ConfigError
from xlj.config.paths import local_path


@command.entry("convert", __doc__, conversion_flags.add)
def main(flags: Namespace) -> None:
    """Converts into a folder that is not there yet."""
    output = local_path("--output", flags.output).absolute()
    if os.path.lexists(output):
        raise ConfigError(f"--output={flags.output} is there already; name a new folder")
    try:
        if flags.action == "import":
            from xlj.conversion.importing import import_folder

            import_folder(flags.source.expanduser(), output)
        elif flags.action == "export":
            from xlj.conversion.exporting import export

            export(flags.checkpoint, output, flags.layer, flags.pooling or "")
        elif flags.action == "merge":
            from xlj.conversion.merging import Ties, merge

            given = {name: getattr(flags, name) for name in ("share", "scale")}
            options = {name: value for name, value in given.items() if value is not None}
            if options and not flags.base:
                raise ConfigError(f"--{next(iter(options))} belongs to TIES; name the --base too")
            ties = Ties(flags.base, **options) if flags.base else None
            merge(flags.models, output, flags.weights or (), ties)
        elif flags.action == "widen":
            from xlj.conversion.widening import widen

            given = {name: getattr(flags, name) for name in conversion_flags.SIZES}
            sizes = {name: size for name, size in given.items() if size is not None}
            widen(flags.checkpoint, sizes, output, flags.copied)
        else:
            if flags.pieces < 1 or not (flags.share is None or 0 < flags.share <= 1):
                raise ConfigError("--pieces must be 1 or more, and --share above 0 and at most 1")
            from xlj.conversion.extending import extend_checkpoint

            text, pieces, share = flags.text, flags.pieces, flags.share
            extend_checkpoint(flags.checkpoint, text, pieces, share, output)
    except OSError as error:  # what is read has errors of its own
        raise ConfigError(f"--output={flags.output} cannot be written: {error}") from None


if __name__ == "__main__":
    raise SystemExit(main())
