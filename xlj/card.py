r"""Scores a model on every test set in a folder, and writes the scores into its model card.

    python -m xlj.card FOLDER_OR_RUN --data=DATA
    python -m xlj.card multilingual-e5-small --data=DATA,scifact --only='tatoeba-*,search-*' \
        --prompt='query: ' --query_prompt='query: ' --document_prompt='passage: '

The card is README.md in the folder of the model. Each score is saved in scores.json beside the card
as soon as it is measured, so the same command resumes. More: docs/search.md
"""

import fnmatch
import json
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli import command, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.api.data_sets import Prompts, Scores
    from xlj.api.encoder import Encoder

_FILE, _ABOUT = "scores.json", "about"


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    add("model", metavar="FOLDER_OR_RUN", help="a Hugging Face folder, a run or a checkpoint")
    add("--data", metavar="DIR,DIR", required=True, help="folders with test sets (docs/search.md)")
    add(
        "--only",
        metavar="NAMES",
        help="names of rows with * and ?, such as 'tatoeba-*,sts-de' [all rows that have files]",
    )
    for flag, use in (
        ("prompt", "each sentence of sets whose sides are alike [the folder's default prompt]"),
        ("query_prompt", "each query of search sets [the folder's prompt for queries]"),
        ("document_prompt", "each document of search sets [the folder's prompt for documents]"),
    ):
        add(f"--{flag}", metavar="TEXT", help=f"text to put before {use}")
    parser.add_file("--output", "file of the card [README.md in the folder of the model]")


@command.entry("card", __doc__, add)
def main(flags: Namespace) -> None:
    """Measures the rows that are missing, and writes the card."""
    from xlj.interop import model_card

    folder = Path(flags.model)
    if not flags.output and ((folder / "meta").is_dir() or not folder.is_dir()):
        raise ConfigError(
            f"{folder} is not a Hugging Face folder or a run; name the file of the card with "
            "--output=FILE"
        )
    output = flags.output or folder / model_card.CARD
    outputs.check_output("output", output)
    from xlj.api import data_sets
    from xlj.api.loading import load

    rows = {
        name: measure
        for folder in flags.data.split(",")
        for name, measure in data_sets.find(Path(folder)).items()
    }
    names = choose(list(rows), flags.only)
    encoder, file = load(flags.model), output.with_name(_FILE)
    prompts = data_sets.Prompts({"": flags.prompt}, flags.query_prompt, flags.document_prompt)
    about = _about(encoder, prompts)
    records = data_sets.read_records(file)
    if records.pop(_ABOUT, about) != about:
        print(f"{file}: measured with another model or prompts; all rows again", file=sys.stderr)
        records = {}
    for name in names:
        if name not in records:
            records[name] = data_sets.measure(partial(rows[name], encoder, prompts))
            print(name, json.dumps(records[name]), flush=True)
            data_sets.write_records(file, {_ABOUT: about, **records})
    text = output.read_text("utf-8") if output.exists() else f"# {output.absolute().parent.name}\n"
    section = _section(flags, encoder, about, records, output)
    output.write_text(model_card.with_section(text, section), "utf-8")
    print(f"card: {output}; scores: {file}", file=sys.stderr)


def choose(rows: list[str], only: str | None) -> list[str]:
    """Returns the rows that a pattern of --only matches; all rows without patterns.

    Raises:
      ConfigError: if a pattern matches no row.
    """
    patterns = ["*"] if only is None else [pattern for pattern in only.split(",") if pattern]
    for pattern in patterns:
        if not fnmatch.filter(rows, pattern):
            raise ConfigError(f"--only: no row matches {pattern!r}; the rows are {', '.join(rows)}")
    return [name for name in rows if any(fnmatch.fnmatch(name, each) for each in patterns)]


def _about(encoder: "Encoder", prompts: "Prompts") -> dict[str, str | int]:
    """Returns what the scores depend on: the model, its dimensions and the prompts."""
    roles = {"query": prompts.query, "document": prompts.document}
    alike = prompts.alike[""]
    return {
        "model": encoder.digest,
        "layer": encoder.embedder().layers[0],
        "dimensions": encoder.embedder().width,
        "prompt": encoder.embedder().prompt if alike is None else alike,
        **{f"{role}_prompt": encoder.role_embedder(role, p).prompt for role, p in roles.items()},
    }


def _section(
    flags: Namespace,
    encoder: "Encoder",
    about: "Scores",
    records: "dict[str, Scores]",
    card: Path,
) -> str:
    """Returns the section of the card."""
    from xlj import __version__
    from xlj.api import data_sets
    from xlj.checkpoints import stored_models
    from xlj.conversion.exporting import card_arguments
    from xlj.interop import model_card

    trained, *_ = card_arguments(stored_models.find(flags.model))
    sentence = encoder.pretrained.sentence
    prompts = {name: about[f"{name}prompt"] for name in ("", "query_", "document_")}
    languages = (
        trained["languages"] if trained else model_card.read_front_matter(card, "languages?")
    )
    licence = model_card.read_front_matter(card, "license")
    dates = sorted({record["date"] for record in records.values()})
    facts = {
        "vectors": f"{about['dimensions']} dimensions; layer {about['layer']}, "
        + (sentence.report() if sentence else "mean of all tokens"),
        "prompts": ", ".join(
            f"{name.rstrip('_') or 'sentences of sets whose sides are alike'}: `{text}`"
            for name, text in prompts.items()
            if text
        )
        or "none",
        "languages": ", ".join(languages) or "not stated",
        "training data": "in the table below" if trained and trained.get("tasks") else "not stated",
        "licence of the model": ", ".join(licence) or "not stated",
        "measured": f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))} with xlj {__version__} "
        f"in {encoder.pretrained.model.dtype} on {encoder.device}; digest of the model "
        f"{about['model'][:12]}",
    }
    table = data_sets.markdown_table(["", ""], facts.items())
    parts = ["## Scores\n", f"Measured by `xlj card`. Scores are in percent.\n\n{table}"]
    if trained and trained.get("tasks"):
        parts.append(model_card.training_data(trained).replace("## Data", "### Training data", 1))
        parts.append("")
    return "\n".join([*parts, data_sets.tables(records)])


if __name__ == "__main__":
    raise SystemExit(main())
