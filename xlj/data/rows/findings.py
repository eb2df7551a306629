"""What the report says about single sources of text: notes, and warnings with a remedy."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlj.data.rows import packing
from xlj.data.rows.store import RowStore, TaskRows, TextCounts
from xlj.data.text import held_out
from xlj.data.text.line_filter import OTHER_LANGUAGE
from xlj.io.json_file import Record

_WARN_ABOVE = 0.1  # share of the lines or pairs of a source that are dropped or truncated
_TARGET_SHARE = 0.95  # share of the pairs that fit in the length that a warning proposes
_SHOWN = 6  # sources of a group that one line names
_ADVICE = {
    "data.filter": "data.filter drops them",
    "score below data.min_score": "a lower data.min_score keeps them",
    "another language": "data.other_language=keep keeps them",
    "in data.exclude": "they are in the files of data.exclude",
    "repeated": "data.duplicates=keep keeps them",
}
"""What to do about dropped lines or pairs, by the reason as it is printed."""
_PRINTED = {
    "stands in data.exclude": "in data.exclude",
    "stands before": "repeated",
    "no JSON": "invalid JSON",
    "field that is no text": "field is not a string",
}
"""The printed form of some reasons in row stores; other reasons are printed unchanged."""


class Finding(NamedTuple):
    """A note or warning about a source.

    Attributes:
      group: what the finding says, without the source. Findings of one group can be joined.
      source: the name of the source, or of a language.
      weight: a number, larger for a worse finding of the group.
      shown: the measure of the finding in a few characters, such as `12.0%`.
      line: the whole finding.
      advice: what to do.
    """

    group: str
    source: str
    weight: float
    shown: str
    line: str
    advice: str


def find(store: RowStore) -> list[Finding]:
    """Returns the findings about all sources of a store: notes, then warnings."""
    tasks, recipe = store.manifest.tasks, store.manifest.recipe
    findings = [note for task in tasks for note in _malformed(task)]
    findings += [note for task in tasks for note in _without_rows(task)]
    findings += _without_held_out(store)
    findings += [note for task in tasks for note in _in_other_languages(task)]
    return findings + [w for task in tasks for w in _warnings(task, recipe)]


def lines(findings: Sequence[Finding]) -> list[str]:
    """Returns a line for each finding."""
    return [finding.line for finding in findings]


def joined_lines(findings: Sequence[Finding]) -> list[str]:
    """Returns a line for each group of findings, with its worst sources first."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.group].append(finding)
    return [_joined(group, members) for group, members in groups.items()]


def _joined(group: str, members: Sequence[Finding]) -> str:
    if len(members) == 1:
        return members[0].line
    worst = sorted(members, key=lambda finding: (-finding.weight, finding.source))
    names = ", ".join(f"{each.source} {each.shown}".rstrip() for each in worst[:_SHOWN])
    more = f", and {len(worst) - _SHOWN:,} more" if len(worst) > _SHOWN else ""
    advice = f"; {worst[0].advice}" if worst[0].advice else ""
    return f"{group}: {len(worst):,} sources: {names}{more}{advice}"


def printed(reason: str) -> str:
    """Returns the printed form of a reason for dropping a line."""
    return _PRINTED.get(reason, reason)


def text_of(task: TaskRows) -> TextCounts:
    """Returns the counts of the text of rows, which must not be labelled."""
    assert task.text is not None, f"{task.name} has labelled rows"
    return task.text


def _malformed(task: TaskRows) -> Iterator[Finding]:
    if text_of(task).malformed:
        count = sum(count for count, _ in text_of(task).malformed.values())
        line = f"{task.name}: {malformed_records([task])}"
        yield Finding("malformed records", task.name, count, f"{count:,}", line, "")


def _without_rows(task: TaskRows) -> Iterator[Finding]:
    if not task.train.rows:
        text = text_of(task)
        line = f"{task.name} has no training rows: {text.sentences:,} lines or pairs were read"
        shown = f"{text.sentences:,}" if text.sentences else ""
        yield Finding("no training rows", task.name, text.sentences, shown, line, "")


def _in_other_languages(task: TaskRows) -> Iterator[Finding]:
    """Yields a note if `data.filter` believes lines to be in other languages."""
    text = text_of(task)
    if not text.other_languages:
        return
    count, found = sum(text.other_languages.values()), Counter(text.other_languages)
    names = ", ".join(f"{code} {n:,}" for code, n in found.most_common(_SHOWN))
    more = ", ..." if len(found) > _SHOWN else ""
    is_dropped = OTHER_LANGUAGE in text.dropped
    advice = "" if is_dropped else "data.other_language=drop drops them"
    line = f"{task.name}: {count:,} of {text.sentences:,} are in other languages: {names}{more}"
    share = count / text.sentences
    group = "lines in other languages, by data.filter" + ", dropped" * is_dropped
    shown = f"{100 * share:.1f}% (most {found.most_common(1)[0][0]})"
    yield Finding(group, task.name, share, shown, f"{line}{advice and '; '}{advice}", advice)


def _without_held_out(store: RowStore) -> list[Finding]:
    """Returns a note for each language with training rows, but without held-out rows."""
    tasks, share = store.manifest.tasks, store.manifest.recipe["held_out_share"]
    if not share:
        return []
    with_held_out = {name for task in tasks if task.held_out.rows for name in task.languages}
    names = dict.fromkeys(name for task in tasks if task.train.rows for name in task.languages)
    reason = f"the text is too short for data.held_out_share={share:g}"
    return [
        Finding("no held-out rows", name, 0, "", f"{name} has no held-out rows: {reason}", reason)
        for name in names
        if name not in with_held_out
    ]


def _warnings(task: TaskRows, recipe: Record) -> Iterator[Finding]:
    """Yields a warning for each loss of a source that exceeds `_WARN_ABOVE`, with a remedy."""
    text = text_of(task)
    total = sum(text.dropped.values())
    if total > _WARN_ABOVE * text.sentences:
        why, count = max(text.dropped.items(), key=lambda item: item[1])
        reason, advice = printed(why), _advice(task, why, count, recipe)
        line = f"warning: {task.name}: {count:,} of {text.sentences:,} dropped ({reason}); {advice}"
        share = total / text.sentences
        group = f"warning: many dropped ({reason})"
        yield Finding(group, task.name, share, f"{100 * share:.1f}%", line, advice)
    sentences = task.train.sentences + task.held_out.sentences
    if task.kind == "sentences" and text.cut > _WARN_ABOVE * sentences:
        advice = f"raise data.length, which is {task.length}"
        line = (
            f"warning: {task.name}: {text.cut:,} of {sentences:,} sentences are truncated; {advice}"
        )
        share = text.cut / sentences
        group = "warning: many sentences are truncated"
        yield Finding(group, task.name, share, f"{100 * share:.1f}%", line, advice)


def _advice(task: TaskRows, why: str, count: int, recipe: Record) -> str:
    """Returns what to do about lines or pairs that were dropped for one reason."""
    text, name = text_of(task), task.name.partition(".")[2]
    if printed(why) == "too long":
        fitting = task.train.sentences + task.held_out.sentences
        length = packing.shortest_length(text.too_long, _TARGET_SHARE, fitting)
        if length:
            return (
                f"{100 * _TARGET_SHARE:.0f} % of {name} fit in data.pair_length={length}, and "
                "data.pair_length=auto keeps 99 %"
            )
        return "raise data.pair_length, or set it to auto"
    if why == held_out.REASON:
        share = float(f"{recipe['held_out_share'] * _WARN_ABOVE * text.sentences / count:.1g}")
        return f"data.held_out_share={share:g} holds out fewer"
    return _ADVICE.get(printed(why), "check these lines of the text")


def malformed_records(tasks: Sequence[TaskRows]) -> str:
    """Describes the malformed records of tasks: by reason, their number and the first place.

    Text that is packed into several kinds of rows counts once. The result is empty if there are no
    malformed records.
    """
    texts = {(text_of(t).input_sha256, t.languages): text_of(t) for t in reversed(tasks)}
    totals: dict[str, tuple[int, str]] = {}
    for text in reversed(texts.values()):
        for why, (count, first) in text.malformed.items():
            total, first_of_all = totals.get(why, (0, first))
            totals[why] = (total + count, first_of_all)
    reasons = [
        f"{printed(why)}: {count:,} (first: {first})" for why, (count, first) in totals.items()
    ]
    return f"malformed, dropped: {'; '.join(reasons)}" if reasons else ""
