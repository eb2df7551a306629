"""Reads labelled TFDS sources: synthetic examples with the features of the real datasets.

This module imports TensorFlow, so tests call `load` in a separate process.
"""

import dataclasses

from xlj.config import ConfigError
from xlj.data.labelled import task_sources as reader


def answer_lists(*answers):
    return {"text": [text for text, _ in answers], "answer_start": [start for _, start in answers]}


def question_row(identity, context, *answers):
    row = {"id": identity, "title": "", "question": f"{identity}?", "context": context}
    return {**row, "answers": answer_lists(*answers)}


XNLI_LANGUAGES = "ar bg de el en es fr hi ru sw th tr ur vi zh".split()


ROWS = {
    "xnli": [
        {
            "premise": {name: f"premise {name}" for name in XNLI_LANGUAGES},
            "hypothesis": {name: f"hypothesis {name}" for name in XNLI_LANGUAGES if name != "th"},
            "label": label,
        }
        for label in (2, 0)
    ],
    "paws_x_wiki": [
        {"sentence1": "eins", "sentence2": "zwei ü", "label": 1},
        {"sentence1": "eins", "sentence2": "", "label": -1},
    ],
    "xquad": [
        question_row("a", "ein Äpfelchen, Äpfel", ("Äpfel", 4), ("Äpfel", 15)),
        question_row("b", "x"),
    ],
    "mlqa": [question_row("a", "wrong", ("wrong", 1))],
    "tydi_qa": [
        question_row("english-1-0", "one two", ("two", 4)),
        question_row("swahili-1-0", "moja mbili", ("mbili", 5)),
        question_row("swahili-1-1", "moja", ("moja", 0)),
    ],
    "wikiann": [
        {"tokens": ["Ada", "spricht"], "tags": [1, 0], "langs": ["de", "de"], "spans": ["PER: Ada"]}
    ],
    "universal_dependencies": [
        {
            "idx": "1",
            "text": "zum Haus",
            "tokens": ["zum", "zu", "dem", "Haus"],
            "upos": [17, 1, 5, 7],
            **{
                name: ["_"] * 4
                for name in ("lemmas", "xpos", "feats", "head", "deprel", "deps", "misc")
            },
        }
    ],
}
"""Examples of each dataset, in the format of its builder."""


def load(sources):
    """Returns the examples of each (source, language) as tuples, or the message of the error."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def as_dataset(builder, *arguments, **keywords):
        features = builder.info.features
        serialized = [features.serialize_example(row) for row in ROWS[builder.name]]
        return tf.data.Dataset.from_tensor_slices(serialized).map(features.deserialize_example)

    results = {}
    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        for source, language in sources:
            try:
                examples = reader.load_tfds(source, language)
                # The first field is the language, which no record of these datasets states.
                tuples = [dataclasses.astuple(example) for example in examples]
                assert all(fields[0] == "" for fields in tuples)
                results[source, language] = [fields[1:] for fields in tuples]
            except ConfigError as error:
                results[source, language] = str(error)
    return results
