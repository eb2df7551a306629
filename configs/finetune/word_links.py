r"""Word alignment from links: an aligner trained on sentence pairs with links between words (ours).

    python -m xlj.finetune --config=configs/finetune/word_links.py --config.init_from=DIR \
        --config.task.train='links/train.{language}.tsv' \
        --config.task.dev='links/dev.{language}.tsv' \
        --config.task.languages=en-fr,en-de
    python -m xlj.align --checkpoint=runs/finetune/word_links/seed-0 --input=pairs.tsv \
        --output=links.txt

A line has the source, the target and the links, separated by tabs. `{language}` is the pair of
languages. A few hundred pairs of a language pair are enough to start. The threshold of links is
chosen on dev, so dev should be pairs that are held out from the training pairs. docs/align.md has
the details.

Possible links (`ipj`) are neither links nor other words in training (`task.positives`).

The head has a higher learning rate than the encoder, because it has few parameters, which start as
the cosine of pretrained vectors. The embeddings are frozen, because a few hundred pairs have few of
the pieces; this also makes steps on CPUs faster. All values are ours.

Measured with multilingual-e5-small (`tests/real/make_folder.py`): 270 pairs of WPT 2003 en-fr for
training, 30 for dev, and the last 147 for testing; 150 steps in bfloat16, seed 0. AER is 3.8 %,
after 7 minutes on two shared CPU cores. The values were chosen after this run and another one, so
this is somewhat too low.

Variant: phrasebook (the embedded corpus).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose, embedded


def phrasebook(config):
    embedded("links", epochs=1, length=64)(config)
    config.task.languages = "en-de"
    config.task.test_languages = "en-de,en-fr,en-sw"
    config.optimizer.rate_multipliers = "word_links_head/.*=2"  # the rate is higher already


VARIANTS = {"phrasebook": phrasebook}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "word_links"
    task.train = "links/train.{language}.tsv"
    task.dev = "links/dev.{language}.tsv"
    task.languages = "en-fr"
    task.length = 128
    task.positives = "ignored"
    optimizer.learning_rate = 1e-4
    optimizer.rate_multipliers = "word_links_head/.*=20"
    optimizer.frozen = "embeddings"
    train.steps, task.batch_size = "5ep", 8
    return choose(config, variant, VARIANTS)
