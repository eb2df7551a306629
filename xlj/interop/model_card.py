"""Writes the model card of an exported model: size, training data, scores, and how to load it.

Also reads the languages of a card.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.config import ConfigError, Model
from xlj.data.labelled.kind import HuggingFace
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.families.xlm_r import XLJ
from xlj.interop.sentence_modules import SentenceModules
from xlj.interop.task_heads import auto_class
from xlj.interop.to_hugging_face import ExportPlan
from xlj.io.json_file import Record
from xlj.objectives.supervised.options import supervised_in

_PIPELINES = {"": "feature-extraction", "prediction_head": "fill-mask"}
"""The `pipeline_tag` of the card for models without a task head, by head."""

CARD = "README.md"
"""The file of a Hugging Face folder that is its model card."""
_BEGIN, _END = "<!-- scores of xlj card -->\n", "<!-- end of scores -->\n"
_NO_LANGUAGES = ("multilingual", "mul", "code")  # in the list of languages of a card

_Meta = Record | None


def card(
    name: str,
    exported: ExportPlan,
    model: Model,
    vocabulary: Vocabulary,
    sentence: SentenceModules | None = None,
    trained: _Meta = None,
    metrics: Mapping[str, float] | None = None,
    run: _Meta = None,
    adapted: str = "",
    path: str = "",
    known: Sequence[str] = (),
) -> str:
    """Returns the model card as Markdown, with the YAML front matter that the Hugging Face Hub
    reads.

    Args:
      name: the title of the card.
      sentence: the sentence modules, if the folder is for sentence-transformers; else None.
      trained: the description of the checkpoint (`Checkpoint.meta`), with its entry `config`
        converted to current keys (`Checkpoint.config`). None if the model is not an xlj checkpoint.
      metrics: the results of the last evaluation on held-out text, by metric name.
      run: the scores of a fine-tuned checkpoint (`checkpoints.workdir.finished_run`); else None.
      adapted: Markdown about the adaptation (`evaluation.adaptation_record`) of an adapted model;
        else empty.
      path: the path of the model in code examples; if empty, `name`.
      known: languages that the model knew before it was trained with xlj.
    """
    sections = [
        _front_matter(exported, sentence is not None, trained, run, known),
        f"# {name}",
        _summary(exported, model, vocabulary, trained),
        "## Use\n\n```python\n" + _usage(path or name, exported, sentence is not None) + "\n```",
    ]
    if exported.hf_task:
        sections += _task_sections(exported, exported.hf_task, trained, run)
    elif not (trained and supervised_in(trained["config"])):
        if trained and trained["step"]:
            sections.append(_objectives(trained["config"]))
        if trained and trained.get("tasks"):
            sections.append(training_data(trained))
        if adapted:
            sections.append(f"## Before and after adaptation\n\n{adapted}")
        if metrics:
            sections.append(_metrics(metrics))
    if exported.left_out:
        parameters_of: dict[str, list[str]] = {}
        for parameter, reason in exported.left_out.items():
            parameters_of.setdefault(reason, []).append(f"`{parameter}`")
        listed = [f"- {reason}: {', '.join(names)}" for reason, names in parameters_of.items()]
        sections.append("## Not exported\n\n" + "\n".join(listed))
    return "\n\n".join(sections) + "\n"


def read_languages(folder: Path) -> tuple[str, ...]:
    """Returns the languages that the model card of a folder lists in its front matter."""
    codes = read_front_matter(folder / CARD, "languages?")
    return tuple(code for code in codes if code not in _NO_LANGUAGES)


def read_front_matter(file: Path, key: str) -> list[str]:
    """Returns the words of a key, or of a list under a key, in the front matter of a model card.

    Args:
      key: a regular expression.
    """
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    front = text.partition("\n---")[0] + "\n" if text.startswith("---\n") else ""
    match = re.search(rf"^{key}:(.*)\n((?:[ \t]*-[ \t].*\n)*)", front, re.MULTILINE)
    inline, items = match.groups() if match else ("", "")
    return re.findall(r"[\w.-]+", inline) + re.findall(r"-[ \t]+['\"]?([\w-]+)", items)


def with_section(text: str, section: str) -> str:
    """Returns a model card with a section of scores, which replaces an earlier one.

    Args:
      text: the card so far; may be empty.
      section: Markdown.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if begin and not end:
        raise ConfigError(f"{CARD} has the line {_BEGIN.strip()!r} without {_END.strip()!r}")
    before = before if begin else f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{before}{_BEGIN}{section.rstrip()}\n{_END}{after}"


def _front_matter(
    exported: ExportPlan, is_sentence: bool, trained: _Meta, run: _Meta, known: Sequence[str]
) -> str:
    task = "sentence-similarity" if is_sentence else _pipeline(exported)
    languages = list(_languages(run)) if run else trained["languages"] if trained else []
    languages = list(dict.fromkeys([*languages, *known]))
    lines = ["---"]
    if languages:
        lines += ["language:", *(f"- {language!r}" for language in languages)]
    library = "sentence-transformers" if is_sentence else "transformers"
    lines += [f"library_name: {library}", f"pipeline_tag: {task}", "tags:", "- xlj"]
    if exported.architecture.model_type != "xlj":
        lines.append(f"- {exported.architecture.model_type}")
    lines += ["- cross-lingual"] * (len(languages) != 1) + ["---"]
    return "\n".join(lines)


def _pipeline(exported: ExportPlan) -> str:
    return exported.hf_task.pipeline if exported.hf_task else _PIPELINES[exported.head]


def _summary(exported: ExportPlan, model: Model, vocabulary: Vocabulary, trained: _Meta) -> str:
    text = (
        f"This encoder has {model.layers} layers, hidden size {model.hidden}, {model.heads} "
        f"attention heads and a vocabulary of {vocabulary.size:,} ids. Its inputs have at most "
        f"{model.positions - 2} tokens."
    )
    if not exported.head:
        text += " It has no prediction head."
    if trained and trained["step"]:
        text += f" It was trained with xlj for {trained['step']:,} of "
        text += f"{trained['config']['train']['steps']:,} steps."
    else:
        text += " It was exported with xlj."
    if trained and trained["config"]["init_from"]:
        began = "Training started" if trained["step"] else "xlj did not train it: its weights come"
        text += f" {began} from `{trained['config']['init_from']}`."
    has_pairs = exported.architecture.has_pad_rows or (
        exported.architecture.model_type == "gte" and vocabulary.markers == "sentencepiece"
    )
    uses_family_pairs = has_pairs and not exported.hf_task
    if trained and trained["step"] and uses_family_pairs:
        text += (
            "\n\nIn pretraining, a pair of sentences was encoded as `<s> A </s> B </s>`. The "
            f"tokenizer of {exported.architecture.model_type} may put two `</s>` between the "
            "sentences."
        )
        if "types" in model.pair_marks:
            text += " The second sentence had token type 1, which this tokenizer does not set."
    return text


def _usage(name: str, exported: ExportPlan, is_sentence: bool) -> str:
    is_xlj = exported.architecture.model_type == XLJ.model_type
    remote = ", trust_remote_code=True" if is_xlj else ""
    if is_sentence:
        return (
            "from sentence_transformers import SentenceTransformer\n\n"
            f'model = SentenceTransformer("{name}"{remote})\n'
            'vectors = model.encode(["The cat sleeps.", "Die Katze schläft."])'
        )
    if exported.hf_task:
        return _task_usage(name, exported, exported.hf_task, remote)
    model = auto_class(exported.head)
    return (
        f"from transformers import {model}, AutoTokenizer\n\n"
        f'model = {model}.from_pretrained("{name}"{remote})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")'
    )


def _objectives(config: Record) -> str:
    """Returns a table of the objectives in all phases, with their options."""
    rows = ["## Objectives", "", "| from step | objective | options |", "|---|---|---|"]
    phases = [{"start_step": 0, "objectives": config["objectives"]}, *config["phases"].values()]
    for phase in sorted(phases, key=lambda phase: phase["start_step"]):
        for objective, options in phase.get("objectives", {}).items():
            if not isinstance(options, Mapping) or not options.get("batch_size", 1):
                continue
            shown = ", ".join(f"{key} {value}" for key, value in options.items())
            rows.append(f"| {phase['start_step']:,} | {objective} | {shown} |")
    return "\n".join(rows)


def training_data(trained: Record) -> str:
    """Returns a section with the text of each language and pair that a model was trained on."""
    rows = ["## Data", "", "| text | sentences or pairs | tokens |", "|---|---|---|"]
    for task, counts in trained["tasks"].items():
        rows.append(f"| {task} | {counts['sentences']:,} | {counts['tokens']:,} |")
    alpha = trained["config"]["data"]["alpha"]
    return "\n".join([*rows, "", f"Languages were sampled with the exponent alpha = {alpha}."])


def _metrics(metrics: Mapping[str, float]) -> str:
    rows = ["## Evaluation", "", "On held-out text. Losses are in nats per prediction.", "",
            "| | loss | accuracy |", "|---|---|---|"]  # fmt: skip
    for key, value in metrics.items():
        name, _, measure = key.rpartition("/")
        if key.startswith("eval/") and measure == "loss":
            accuracy = metrics.get(f"{name}/accuracy")
            shown = "" if accuracy is None else f"{100 * accuracy:.1f} %"
            rows.append(f"| {name.removeprefix('eval/')} | {value:.3f} | {shown} |")
    return "\n".join(rows)


def _task_sections(
    exported: ExportPlan, hf_task: HuggingFace, trained: _Meta, run: _Meta
) -> list[str]:
    """Returns the section about the task, and the section with the scores of `run`, if any."""
    kind = exported.head.removesuffix("_head")
    lines = [f"{kind.replace('_', ' ').capitalize()}."]
    if exported.labels and exported.labels[0] != "LABEL_0":
        lines.append(f"Labels: {', '.join(f'`{label}`' for label in exported.labels)}.")
    if trained and trained["step"]:
        options = supervised_in(trained["config"])
        counts = {name: counts["sentences"] for name, counts in trained["tasks"].items()}
        rows = [f"{name.partition('.')[2]} ({count:,} rows)" for name, count in counts.items()]
        lines.append(f"Fine-tuned on {', '.join(rows)}, with at most {options['length']} tokens.")
    if hf_task.remark and (hf_task.always or trained and trained["step"]):
        lines.append(hf_task.remark)
    return ["## Task\n\n" + " ".join(lines), *([_scores(run)] if run else [])]


def _languages(run: Record) -> list[str]:
    """Returns the languages on which a run was trained, then the other languages of its scores."""
    scored = itertools.chain(*run["dev"].values(), *run["test"].values())
    return list(dict.fromkeys([*run["languages"], *scored]))


def _task_usage(name: str, exported: ExportPlan, hf_task: HuggingFace, remote: str) -> str:
    loader = auto_class(exported.head, exported.own)
    if not hf_task.usage:
        return (
            "from transformers import pipeline\n\n"
            f'classify = pipeline("{hf_task.pipeline}", "{name}"{remote})\n'
            'print(classify({"text": "A text.", "text_pair": "For pairs: the second text."}))'
        )
    load = (
        f"import torch\nfrom transformers import {loader}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        f'model = {loader}.from_pretrained("{name}"{remote})\n'
    )
    return load + hf_task.usage


def _scores(run: Record) -> str:
    """Returns a table of scores in percent.

    It has one row for each language and one for the mean, and one column for each split and metric.
    """
    columns = {
        f"{split} {metric}": by_language
        for split in ("dev", "test")
        for metric, by_language in run[split].items()
    }
    if not columns:
        return (
            "## Scores\n\nThe model was not scored, because there was no labelled dev or test data."
        )
    rows = ["## Scores (%)", "", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for language in _languages(run):
        scores = [by_language.get(language) for by_language in columns.values()]
        cells = ["" if score is None else f"{score:.1f}" for score in scores]
        if any(cells):
            rows.append(f"| {language} | {' | '.join(cells)} |")
    means = [f"{sum(scores.values()) / len(scores):.1f}" for scores in columns.values()]
    return "\n".join([*rows, f"| mean | {' | '.join(means)} |"])
