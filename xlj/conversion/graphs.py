"""Adds ONNX graphs to an exported folder, and measures what int8 weights change."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.checkpoints.stored_models import Leaf
from xlj.config import ConfigError, Model
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.inference.onnx_model import OnnxModel, batches_of
from xlj.interop import onnx_graph, to_onnx
from xlj.interop.onnx_names import FILES, HIDDEN, LOGITS, WEIGHTS
from xlj.interop.sentence_modules import SentenceModules
from xlj.interop.to_hugging_face import ExportPlan
from xlj.retrieval.onnx_embedder import OnnxEmbedder
from xlj.retrieval.sentence_embedder import fill_rows
from xlj.retrieval.vector_loss import MAX_LINES, measure


class Graphs(NamedTuple):
    """The graphs of an export.

    Attributes:
      has_int8: whether to write graphs with int8 and uint8 weights too.
      texts: lines of each language, by the name of the file, to measure what int8 weights change.
    """

    has_int8: bool = False
    texts: Mapping[str, Sequence[str]] = {}

    def check(self, exported: ExportPlan) -> None:
        """Refuses an export that cannot be written or measured.

        Raises:
          ConfigError: if a library is not installed, or the graph has neither vectors nor labels
            of single texts.
        """
        onnx_graph.require()
        if self.texts and exported.head in ("question_answering_head", "multiple_choice_head"):
            raise ConfigError(
                f"--text: the graph of {exported.head} reads pairs, but --text has single "
                "sentences; remove --text"
            )

    def write(
        self,
        folder: Path,
        exported: ExportPlan,
        params: Mapping[str, Leaf],
        model: Model,
        vocabulary: Vocabulary,
        sentence: SentenceModules | None,
    ) -> str:
        """Writes the graphs into an exported folder, and prints what int8 weights change.

        Args:
          params: the parameters by name, with the weights of sentence modules.

        Returns:
          A section of the model card.
        """
        kinds = tuple(WEIGHTS) if self.has_int8 else ("float32",)
        (folder / "onnx").mkdir()
        for weights in kinds:
            file = folder / FILES[weights]
            to_onnx.write(file, exported, params, model, vocabulary, sentence, weights)
            print(f"ONNX: {FILES[weights]} ({file.stat().st_size / 1e6:,.0f} MB)")
        section = ["## ONNX", "", *(f"- `{FILES[kind]}`: {kind} weights" for kind in kinds)]
        if self.texts:
            title, loss = self._measure(folder)
            print(f"{title}:\n{loss}")
            section += ["", f"{title}:", "", loss]
        return "\n".join(section) + "\n"

    def _measure(self, folder: Path) -> tuple[str, str]:
        exact, other = (OnnxModel(folder, weights) for weights in ("float32", "int8"))
        if HIDDEN in exact.outputs:
            layers = () if exact.sentence else (exact.layers,)
            loss = measure(OnnxEmbedder(exact, layers), OnnxEmbedder(other, layers), self.texts)
            return "Vectors of int8 weights, compared with float32", loss.as_markdown()
        rows = ["| text | lines | equal |", "| --- | ---: | ---: |"]
        for name, lines in self.texts.items():
            some = lines[:MAX_LINES]
            equal = _equal_labels(exact, other, some)
            rows.append(f"| {name} | {len(some):,} | {100 * equal:.2f} |")
        return "Labels of int8 weights that equal those of float32, in %", "\n".join(rows)


def _equal_labels(exact: OnnxModel, other: OnnxModel, lines: Sequence[str]) -> float:
    """Returns the share of predictions whose highest logit is the same in two graphs."""
    encoded = exact.vocabulary.encode(lines)
    lengths = np.minimum(encoded.lengths, exact.max_tokens - 2)
    equal = count = 0
    for members, length in batches_of(lengths + 2, None):
        tokens = fill_rows(encoded, lengths, members, (len(members), length))
        first, second = (model.run(LOGITS, tokens).argmax(-1) for model in (exact, other))
        counted = np.ones(first.shape, bool)
        if first.ndim == 2:  # predictions of tokens
            counted = (np.arange(length) < lengths[members, None] + 2) & (tokens != BOS)
            counted &= tokens != EOS
        equal += int((first == second)[counted].sum())
        count += int(counted.sum())
    return equal / max(count, 1)
