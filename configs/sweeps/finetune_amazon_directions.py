"""Amazon reviews, trained in each language and scored in all four: MetaXLM, Figure 6.

python -m xlj.sweep --config=configs/sweeps/finetune_amazon_directions.py --config.init_from=DIR

The data of all domains is used together. This is our choice, since the paper does not state it.
"""

from xlj.tools.sweeping import Sweep


def get_sweep(folder):
    runs = [{"task.languages": language} for language in ("en", "de", "fr", "ja")]
    recipe = "configs/finetune/amazon_reviews.py"
    return Sweep(recipe, runs, {"task.seeds": 5}, command="xlj.finetune")
