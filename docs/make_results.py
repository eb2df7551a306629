"""Measures multilingual-e5-small, and writes the tables of two pages in docs/experiments:
multilingual_e5.md and sentence_encoders.md.

    python tests/real/make_folder.py                       # makes the model's folder
    python docs/make_results.py                            # measures all rows that are missing
    python docs/make_results.py --only='tatoeba-*,sts-de'  # measures these rows again
    python docs/make_results.py --only=                    # only writes the pages

The files `*_rows.py` have the rows and the functions that measure them, and `*_tables.py` make the
tables. Each row is saved in multilingual_e5.json next to the pages as soon as it is measured, so
the same command resumes. The pages have the rows that have a measurement, beside the published
scores in multilingual_e5_published.json. Only scores leave the data.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from functools import partial
from pathlib import Path

import paired_rows
import product_rows
import released_tables
import result_rows
import sentence_rows
import sentence_tables
import teacher_rows

from xlj.api import data_sets
from xlj.api.data_sets import Scores

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/experiments"
MEASURED, PUBLISHED = "multilingual_e5", "multilingual_e5_published"
ROWS = result_rows.ROWS | sentence_rows.ROWS | teacher_rows.ROWS | product_rows.ROWS
ROWS |= paired_rows.ROWS
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", help="names of rows with * and ?, separated by commas [rows without measurement]"
    )
    parser.add_argument(
        "--model", type=Path, default=ROOT / "build/real/e5", help="the folder [build/real/e5]"
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "../shared/data", help="the data sets [../shared/data]"
    )
    flags = parser.parse_args()
    try:
        names = choose(flags.only, read(MEASURED))
    except ValueError as error:
        parser.error(str(error))
    for flag, folder in (("--model", flags.model), ("--data", flags.data)):
        if names and not folder.is_dir():
            parser.error(f"{flag}={folder}: there is no such folder; name one with {flag}=FOLDER")
    for name in names:
        record = data_sets.measure(partial(ROWS[name], flags.model, flags.data))
        print(name, json.dumps(record), flush=True)
        save(read(MEASURED) | {name: record})
    for file, text in pages(read(MEASURED)).items():
        file.write_text(text, "utf-8")


def choose(only: str | None, records: dict[str, Scores]) -> list[str]:
    """Returns the rows to measure.

    Raises:
      ValueError: if a pattern matches no row.
    """
    if only is None:
        return [name for name in ROWS if name not in records]
    patterns = [pattern for pattern in only.split(",") if pattern]
    for pattern in patterns:
        if not fnmatch.filter(ROWS, pattern):
            raise ValueError(f"--only: no row matches {pattern!r}; the rows are {', '.join(ROWS)}")
    return [name for name in ROWS if any(fnmatch.fnmatch(name, each) for each in patterns)]


def read(name: str) -> dict[str, Scores]:
    """Returns the records of a file next to the pages, by row; none if there is no file."""
    return data_sets.read_records(FOLDER / f"{name}.json")


def save(records: dict[str, Scores]) -> None:
    """Writes all records, in the order of `ROWS`."""
    ordered = {name: records[name] for name in ROWS if name in records}
    data_sets.write_records(FOLDER / f"{MEASURED}.json", ordered)


def pages(records: dict[str, Scores]) -> dict[Path, str]:
    """Returns the text of each page, with the tables of the measured rows."""
    sections = {
        "multilingual_e5": released_tables.sections(records, read(PUBLISHED)),
        "sentence_encoders": sentence_tables.sections(records),
    }
    return {FOLDER / f"{name}.md": _page(name, each) for name, each in sections.items()}


def _page(name: str, sections: list[str]) -> str:
    before, _, rest = (FOLDER / f"{name}.md").read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "".join(f"{each}\n" for each in sections if each) + END + after


if __name__ == "__main__":
    main()
