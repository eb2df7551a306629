"""XQuAD (Artetxe et al., 2020): questions about English paragraphs of SQuAD, translated.

Source: XLM-E, Table 7, and XLM-Align, Table 12: trained on SQuAD 1.1, 4 epochs, 32 windows per
step, learning rate from {2, 3, 4}e-5, warm-up for 10 % of the steps. XTREME's script has windows of
384 tokens, questions of at most 64 tokens and answers of at most 30. Here windows overlap by 128
tokens (ours). The script moves windows by 128 tokens, so the script has more windows, which overlap
by 190 to 240 tokens.

XQuAD has no dev sets. The checkpoint is selected on SQuAD's English dev set, as XTREME does.
Variant: phrasebook (the embedded corpus).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose, embedded


def phrasebook(config):
    embedded("questions", epochs=5, length=64)(config)
    config.task.dev_languages = ""
    config.task.stride, config.task.question_length = 16, 20
    config.task.answer_length, config.task.metric = 8, "mlqa"  # mlqa splits Chinese into characters
    config.optimizer.frozen = "embeddings"  # else English drifts away from the other languages


VARIANTS = {"phrasebook": phrasebook}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "question_answering"
    task.train = "data/xtreme/squad/train-v1.1.json"
    task.dev = "data/xtreme/squad/dev-v1.1.json"
    task.test = "data/xtreme/xquad/xquad.{language}.json"
    task.dev_languages = "en"
    task.test_languages = "ar,de,el,en,es,hi,ru,th,tr,vi,zh"
    task.length, task.stride, task.question_length, task.answer_length = 384, 128, 64, 30
    optimizer.learning_rate = 3e-5
    train.epochs, train.batch_size = 4, 32
    return choose(config, variant, VARIANTS)
