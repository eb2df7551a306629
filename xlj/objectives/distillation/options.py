"""Options of distillation from a monolingual teacher (a baseline of MetaXLM)."""

import dataclasses
from collections.abc import Mapping, Sequence

from xlj.config.fields import ConfigError
from xlj.config.languages import matching
from xlj.config.objectives import Options, option
from xlj.config.sections import Sections


@dataclasses.dataclass(frozen=True)
class Distillation(Options):
    """Distillation (baseline in MetaXLM, Table 3): predicts the vectors of a monolingual teacher on
    rows of the teacher's language."""

    rows = "text"
    implementation = "xlj.objectives.distillation.loss:objective"
    state_keys = ("teacher",)

    teacher: str = option(
        "", "checkpoint or workdir of the teacher, which has the same sizes and vocabulary"
    )
    language: str = option("en", "language of the teacher; rows of other languages are not used")

    def check(self, path: str, config: Sections) -> None:
        """Refuses a missing teacher."""
        if not self.teacher:
            raise ConfigError(
                f"{path} is on without a teacher; name a checkpoint in {path}.teacher"
            )

    def check_languages(self, path: str, languages: Sequence[str], where: str) -> None:
        """Refuses a teacher whose language is not in the text."""
        if not matching(self.language, languages):
            raise ConfigError(
                f"{path}.language={self.language} is not in {where}; add the language there"
            )

    def models(self) -> Mapping[str, str]:
        """Returns the path of the teacher, by the key `teacher`."""
        return {"teacher": self.teacher}
