"""Options of the distillation of sentence vectors, on sentence pairs and on text."""

import dataclasses
from typing import ClassVar

from xlj.config import row_kinds
from xlj.config.choices import ACTIVATIONS, POOLINGS
from xlj.config.fields import ConfigError, Unused
from xlj.config.objectives import Options, option, while_on
from xlj.config.sections import Sections

SIDES = ("both", "same", "other")
"""The values of `sides`: which sentences of a pair the student reads."""


def _while_embedding(config: Sections, path: str) -> Unused | None:
    """only without `data.rows`, whose rows contain the vectors"""
    if config.data.rows:
        return Unused("the rows of data.rows contain the teacher's vectors", True)
    return while_on(config, path)


def _with_dense(config: Sections, path: str) -> Unused | None:
    """only with `dense`"""
    if unused := while_on(config, path):
        return unused
    section = path.rpartition(".")[0]
    options = config.objectives_on()[section.rpartition(".")[2]]
    return None if options.dense else Unused(f"{section}.dense is 0")


@dataclasses.dataclass(frozen=True)
class Teaching(Options):
    """The keys of all objectives that distil sentence vectors."""

    implementation = "xlj.objectives.sentence_distillation.loss:objective"
    state_keys = ("teacher", "teacher_digest", "teacher_prompt", "width", "prompt", "dense", "bias")
    kind: ClassVar[str]
    """The kind of rows without arguments."""

    teacher: str = option(
        "",
        "sentence encoder whose vectors the student learns: a Hugging Face folder, a workdir or a "
        "checkpoint, with any vocabulary and sizes. It computes the vector of each sentence once, "
        "when rows are built. Or a file NAME.npy with the vectors of the lines of NAME.txt",
        used_when=_while_embedding,
    )
    teacher_prompt: str = option(
        "",
        "text that begins each sentence of the teacher, such as 'query: '; empty: the default "
        "prompt of the teacher's sentence modules",
        used_when=_while_embedding,
    )
    teacher_digest: str = option(
        "",
        "digest of the teacher and its prompt, which xlj sets; another teacher is then an error",
        used_when=_while_embedding,
    )
    width: int = option(
        0,
        "dimensions of the teacher's vectors, which xlj sets",
        low=0,
        used_when=_while_embedding,
    )
    prompt: str = option("", "text that begins each sentence of the student, such as 'query: '")
    loss: str = option(
        "squared",
        "squared: the squared distance of the student's and the teacher's vectors; cosine: 1 minus "
        "their cosine",
        choices=("squared", "cosine"),
    )
    layer: int = option(
        -2,
        "layer of the sentence vectors; 0: the embeddings, -1: the layer at two thirds of the "
        "depth, -2: the last layer, whose vectors can be exported",
        low=-2,
    )
    pooling: str = option(
        "mean", "how a sentence's vector is computed, as in objectives.contrast", choices=POOLINGS
    )
    dense: int = option(
        0,
        "outputs of a linear layer after the pooling; 0: no such layer. A student with other "
        "dimensions than the teacher needs the teacher's number",
        low=0,
    )
    bias: bool = option(False, "the linear layer has a bias", used_when=_with_dense)
    activation: str = option(
        "Identity",
        "activation after the linear layer",
        choices=ACTIVATIONS,
        used_when=_with_dense,
    )

    @property
    def rows(self) -> str:  # type: ignore[override]
        """The kind of rows, with the teacher and the prompt."""
        arguments: dict[str, int | bool | str] = {
            "width": self.width,
            "teacher": self.teacher_digest,
            "prompt": self.prompt,
            **self.of_kind,
        }
        return row_kinds.with_arguments(self.kind, arguments)

    @property
    def of_kind(self) -> dict[str, int | bool | str]:
        """Further arguments of the kind of rows."""
        return {}

    def check(self, path: str, config: Sections) -> None:
        """Refuses a missing teacher."""
        if not self.teacher and not config.data.rows:
            raise ConfigError(
                f"{path} is on without a teacher; name a sentence encoder in {path}.teacher"
            )

    def check_width(self, path: str, width: int, hidden: int) -> None:
        """Compares the sizes of the teacher's and the student's vectors.

        Args:
          path: the path of the objective in the config.
          width: the number of dimensions of the teacher's vectors.
          hidden: the hidden size of the student.

        Raises:
          ConfigError: if the vectors have different sizes.
        """
        if width != (own := self.dense or hidden):
            raise ConfigError(
                f"{path}: the teacher's vectors have {width} dimensions, but those of the model "
                f"have {own}; set {path}.dense={width}, which adds a linear layer"
            )


@dataclasses.dataclass(frozen=True)
class SentenceDistillation(Teaching):
    """Sentence distillation: the vectors of a sentence and of its translation approach the vector
    that a teacher has of the sentence (Reimers and Gurevych, 2020)."""

    kind = "taught_pairs"

    languages: tuple[str, ...] = option(
        ("en",),
        "languages that the teacher reads. Of a pair, it reads the first sentence in one of these "
        "languages",
    )
    sides: str = option(
        "both",
        "which sentences the student reads. same: those that the teacher reads; other: their "
        "translations; both",
        choices=SIDES,
    )

    @property
    def of_kind(self) -> dict[str, int | bool | str]:
        """The languages of the teacher."""
        return {"languages": ",".join(self.languages)}


@dataclasses.dataclass(frozen=True)
class TextDistillation(Teaching):
    """Text distillation: the vectors of single sentences approach those that a teacher has of the
    same sentences. It keeps the space of old languages, and heals smaller models."""

    kind = "taught_text"
