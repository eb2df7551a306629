"""Amazon reviews, one model per language and domain: MetaXLM, Table 2.

python -m xlj.sweep --config=configs/sweeps/finetune_amazon_domains.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep

SPLITS = ("train", "dev", "test")


def get_sweep(folder):
    runs = [
        {"name": domain}
        | {f"task.{split}": f"data/amazon/{{language}}.{domain}.{split}.tsv" for split in SPLITS}
        for domain in ("books", "dvd", "music")
    ]
    recipe = "configs/finetune/amazon_reviews.py"
    settings = {"variant": "per_language", "task.seeds": 5}
    return Sweep(recipe, runs, settings, command="xlj.finetune")
