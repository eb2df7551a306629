"""MLQA (Lewis et al., 2020): questions about Wikipedia in seven languages.

Source: XLM-E, Table 7, and XLM-Align, Table 12: trained on SQuAD 1.1 as for XQuAD, with {2, 3, 4}
epochs. The dev sets are MLQA's dev sets, and the metric follows MLQA's rules for each language.
"""

from xquad import get_config as of_xquad

from xlj.config.variants import choose


def get_config(variant=""):
    config = of_xquad()
    config.task.dev = "data/xtreme/mlqa/MLQA_V1/dev/dev-context-{language}-question-{language}.json"
    config.task.test = (
        "data/xtreme/mlqa/MLQA_V1/test/test-context-{language}-question-{language}.json"
    )
    config.task.dev_languages = ""
    config.task.test_languages = "ar,de,en,es,hi,vi,zh"
    config.task.metric = "mlqa"
    return choose(config, variant, {})
