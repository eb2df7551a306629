"""Belebele (Bandarkar et al., 2024): four answers to a question about a passage, 122 languages.

Not run: we do not have the data. Tests read its layout.

Source: the paper trains on an assembled English set of other data sets. We do not have its
hyperparameters. Our values are those of XQuAD, with half the examples per step.

Data: Belebele's files, and the training set of its script assemble_training_set.py, written as JSON
lines: `DataFrame.to_json(FILE, orient="records", lines=True)` of the rows with the split train or
dev. A row of 512 tokens has 125 for each answer with question and passage, so the ends of long
passages are cut. `task.test_languages` has the 122 codes to choose from.
"""

from sib200 import LANGUAGES

from xlj.config.finetuning import default
from xlj.config.variants import choose


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "multiple_choice"
    task.train = "data/belebele/train.jsonl"
    task.dev = "data/belebele/dev.jsonl"
    task.test = "data/belebele/{language}.jsonl"
    task.columns = (
        "question+flores_passage|passage,mc_answer1|answer1,mc_answer2|answer2,mc_answer3|answer3,"
        "mc_answer4|answer4,correct_answer_num"
    )
    task.names = "1,2,3,4"
    task.languages = task.dev_languages = "eng_Latn"
    task.test_languages = LANGUAGES
    task.length = 512
    optimizer.learning_rate = 3e-5
    train.steps, task.batch_size = "4ep", 16
    return choose(config, variant, {})
