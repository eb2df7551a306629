"""The README.md of an exported model: what it is, what it was trained on, how to load it."""

import itertools
from collections.abc import Mapping

from xlj.config import Model
from xlj.config.objectives.supervised import supervised_in
from xlj.data.labelled.kind import HuggingFace
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.architectures import XLJ, XLM_R, auto_class
from xlj.interop.exporting import Exported
from xlj.interop.sentence_modules import SentenceModules
from xlj.io.json_file import Record

_PIPELINES = {"": "feature-extraction", "prediction_head": "fill-mask"}
"""Names that model hubs have for a model without the head of a task."""

_Meta = Record | None


def card(
    name: str,
    exported: Exported,
    model: Model,
    vocabulary: Vocabulary,
    sentence: SentenceModules | None = None,
    trained: _Meta = None,
    metrics: Mapping[str, float] | None = None,
    run: _Meta = None,
) -> str:
    """Markdown, with the front matter that model hubs read.

    Args:
      sentence: how vectors are made, if the folder is one of sentence-transformers.
      trained: the description of the checkpoint (`Checkpoint.meta`) with the config by today's keys
        (`Checkpoint.config`), unless it was not xlj's.
      metrics: the last evaluation on held-out text, by name.
      run: the scores of the checkpoint, if it was fine-tuned (`training.workdir.finished_run`).
    """
    sections = [
        _front_matter(exported, sentence is not None, trained, run),
        f"# {name}",
        _summary(exported, model, vocabulary, trained),
        "## Use\n\n```python\n" + _usage(name, exported, sentence is not None) + "\n```",
    ]
    if exported.theirs:
        sections += _task_sections(exported, exported.theirs, trained, run)
    elif not (trained and supervised_in(trained["config"])):
        if trained and trained["step"]:
            sections.append(_objectives(trained["config"]))
        if trained and trained.get("tasks"):  # older checkpoints do not say
            sections.append(_data(trained))
        if metrics:
            sections.append(_metrics(metrics))
    if exported.left_out:
        parts: dict[str, list[str]] = {}
        for parameter, reason in exported.left_out.items():
            parts.setdefault(reason, []).append(f"`{parameter}`")
        listed = [f"- {reason}: {', '.join(names)}" for reason, names in parts.items()]
        sections.append("## Not exported\n\n" + "\n".join(listed))
    return "\n\n".join(sections) + "\n"


def _front_matter(exported: Exported, is_sentence: bool, trained: _Meta, run: _Meta) -> str:
    task = "sentence-similarity" if is_sentence else _pipeline(exported)
    languages = _languages(run) if run else trained["languages"] if trained else []
    lines = ["---"]
    if languages:
        lines += ["language:", *(f"- {language!r}" for language in languages)]
    library = "sentence-transformers" if is_sentence else "transformers"
    lines += [f"library_name: {library}", f"pipeline_tag: {task}", "tags:", "- xlj"]
    if exported.architecture.model_type != "xlj":
        lines.append(f"- {exported.architecture.model_type}")
    lines += ["- cross-lingual", "---"]
    return "\n".join(lines)


def _pipeline(exported: Exported) -> str:
    return exported.theirs.pipeline if exported.theirs else _PIPELINES[exported.head]


def _summary(exported: Exported, model: Model, vocabulary: Vocabulary, trained: _Meta) -> str:
    origin = "Exported by xlj"
    if trained and trained["step"]:
        origin += f" after {trained['step']:,} of {trained['config']['train']['steps']:,} steps"
    text = (
        f"{origin}: an encoder of {model.layers} layers, {model.hidden} wide, {model.heads} heads, "
        f"{vocabulary.size:,} ids, at most {model.positions - 2} tokens."
    )
    if trained and trained["config"]["init_from"]:
        began = "Training started" if trained["step"] else "Untrained by xlj, its weights come"
        text += f" {began} from `{trained['config']['init_from']}`."
    if not exported.head:
        text += " It has no head."
    has_pairs = exported.architecture.prefix == XLM_R.prefix or (
        exported.architecture.model_type == "gte" and vocabulary.markers == "sentencepiece"
    )
    of_family = has_pairs and not exported.theirs
    if trained and trained["step"] and of_family:
        text += (
            "\n\nIn pretraining a pair of sentences was `<s> A </s> B </s>`; the tokenizer of "
            f"{exported.architecture.model_type} may put two `</s>` between them."
        )
        if model.pair_token_types:
            text += " The second sentence had token type 1, which that tokenizer does not set."
    return text


def _usage(name: str, exported: Exported, is_sentence: bool) -> str:
    is_ours = exported.architecture.model_type == XLJ.model_type
    remote = ", trust_remote_code=True" if is_ours else ""
    if is_sentence:
        return (
            "from sentence_transformers import SentenceTransformer\n\n"
            f'vectors = SentenceTransformer("{name}"{remote}).encode(sentences)'
        )
    if exported.theirs:
        return _task_usage(name, exported, exported.theirs, remote)
    model = auto_class(exported.head)
    return (
        f"from transformers import {model}, AutoTokenizer\n\n"
        f'model = {model}.from_pretrained("{name}"{remote})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")'
    )


def _objectives(config: Record) -> str:
    """The objectives of all phases, with the options that were in use."""
    rows = ["## Objectives", "", "| from step | objective | options |", "|---|---|---|"]
    phases = [{"start_step": 0, "objectives": config["objectives"]}, *config["phases"].values()]
    for phase in sorted(phases, key=lambda phase: phase["start_step"]):
        for objective, options in phase.get("objectives", {}).items():
            if not isinstance(options, Mapping) or not options.get("batch_rows", 1):
                continue
            shown = ", ".join(f"{key} {value}" for key, value in options.items())
            rows.append(f"| {phase['start_step']:,} | {objective} | {shown} |")
    return "\n".join(rows)


def _data(trained: Record) -> str:
    rows = ["## Data", "", "| text | sentences or pairs | tokens |", "|---|---|---|"]
    for task, counts in trained["tasks"].items():
        rows.append(f"| {task} | {counts['sentences']:,} | {counts['tokens']:,} |")
    alpha = trained["config"]["data"]["alpha"]
    return "\n".join([*rows, "", f"Languages were sampled with an exponent of {alpha}."])


def _metrics(metrics: Mapping[str, float]) -> str:
    rows = ["## Held-out loss (nats a prediction) and accuracy", "",
            "| | loss | accuracy |", "|---|---|---|"]  # fmt: skip
    for key, value in metrics.items():
        name, _, what = key.rpartition("/")
        if key.startswith("eval/") and what == "loss":
            accuracy = metrics.get(f"{name}/accuracy", float("nan"))
            rows.append(f"| {name.removeprefix('eval/')} | {value:.3f} | {100 * accuracy:.1f} % |")
    return "\n".join(rows)


def _task_sections(
    exported: Exported, theirs: HuggingFace, trained: _Meta, run: _Meta
) -> list[str]:
    """What the task is and, where they are known, its scores."""
    kind = exported.head.removesuffix("_head")
    lines = [f"{kind.replace('_', ' ').capitalize()}."]
    if exported.labels and exported.labels[0] != "LABEL_0":
        lines.append(f"Labels: {', '.join(f'`{label}`' for label in exported.labels)}.")
    if trained and trained["step"]:
        options = supervised_in(trained["config"])
        counts = {name: counts["sentences"] for name, counts in trained["tasks"].items()}
        rows = [f"{name.partition('.')[2]} ({count:,} rows)" for name, count in counts.items()]
        lines.append(f"Fine-tuned on {', '.join(rows)} of at most {options['length']} tokens.")
    if theirs.remark and (theirs.always or trained and trained["step"]):
        lines.append(theirs.remark)
    return ["## Task\n\n" + " ".join(lines), *([_scores(run)] if run else [])]


def _languages(run: Record) -> list[str]:
    """The languages that a run was trained on or scored in, in this order."""
    scored = itertools.chain(*run["dev"].values(), *run["test"].values())
    return list(dict.fromkeys([*run["languages"], *scored]))


def _task_usage(name: str, exported: Exported, theirs: HuggingFace, remote: str) -> str:
    loader = auto_class(exported.head, exported.own)
    if not theirs.usage:
        return (
            "from transformers import pipeline\n\n"
            f'classify = pipeline("{theirs.pipeline}", "{name}"{remote})\n'
            'print(classify({"text": "A text.", "text_pair": "The other, if it is a pair."}))'
        )
    load = (
        f"import torch\nfrom transformers import {loader}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        f'model = {loader}.from_pretrained("{name}"{remote})\n'
    )
    return load + theirs.usage


def _scores(run: Record) -> str:
    """A table of percent: a line a language and their mean, a column a split and metric."""
    columns = {
        f"{split} {metric}": by_language
        for split in ("dev", "test")
        for metric, by_language in run[split].items()
    }
    if not columns:
        return "## Scores\n\nNo labels were there to score it."
    rows = ["## Scores (%)", "", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for language in _languages(run):
        scores = [found.get(language) for found in columns.values()]
        cells = ["" if score is None else f"{score:.1f}" for score in scores]
        if any(cells):
            rows.append(f"| {language} | {' | '.join(cells)} |")
    means = [f"{sum(found.values()) / len(found):.1f}" for found in columns.values()]
    return "\n".join([*rows, f"| mean | {' | '.join(means)} |"])
