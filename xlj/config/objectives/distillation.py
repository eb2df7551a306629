"""Distillation from a monolingual teacher, MetaXLM's baseline."""

import dataclasses
from collections.abc import Mapping, Sequence

from xlj.config.fields import ConfigError
from xlj.config.objectives.options import Options, option, register
from xlj.config.sections import Sections


@register("distillation")
@dataclasses.dataclass(frozen=True)
class Distillation(Options):
    """MetaXLM's baseline (Table 3): vectors of a monolingual teacher, on its language's rows."""

    rows = "text"
    implementation = "xlj.objectives.distillation:objective"
    state_keys = ("teacher",)

    teacher: str = option("", "checkpoint, or workdir, of the teacher: same sizes, same vocabulary")
    language: str = option("en", "the teacher's language; rows of others are left out")

    def check(self, path: str, config: Sections) -> None:
        """Refuses no teacher."""
        if not self.teacher:
            raise ConfigError(f"{path} is on; name a checkpoint with {path}.teacher")

    def check_languages(self, path: str, languages: Sequence[str], where: str) -> None:
        """Refuses a teacher of another language."""
        if self.language not in languages:
            raise ConfigError(f"{path}.language={self.language} is not among {where}")

    def models(self) -> Mapping[str, str]:
        """The teacher."""
        return {"teacher": self.teacher}
