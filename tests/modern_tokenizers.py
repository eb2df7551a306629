"""Trains tokenizers in the formats of ModernBERT, mmBERT and EuroBERT on lines of text."""

import json

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def modernbert(lines, size):
    """Byte-level BPE with GPT-2's split and NFC.

    Runs of spaces are tokens, and the mask token includes the space before it.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, lines, size, special_tokens=["|||IP_ADDRESS|||", "<|padding|>"])
    runs = [AddedToken(" " * width, normalized=True) for width in range(24, 1, -1)]
    tokenizer.add_tokens([*runs, AddedToken("|||EMAIL|||", normalized=True)])
    names = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    tokenizer.add_special_tokens([_special(name, lstrip=name == "[MASK]") for name in names])
    tokenizer.add_tokens([AddedToken(f"[unused{k}]", normalized=True) for k in range(5)])
    tokenizer.post_processor = _template(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def mmbert(lines, size, prepend_scheme="first"):
    """Gemma 2's BPE with byte fallback. `<s>` and `</s>` are ordinary pieces, like HTML tags."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    ordinary = ["\n\n", "\u2581\u2581", "<table>", "<s>", "</s>"]
    trained = Tokenizer(models.BPE())
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = metaspace
    options = {"special_tokens": [*specials, *ordinary, *BYTES], "limit_alphabet": 300}
    _train(trained, lines, size, byte_level=False, **options)
    content = json.loads(trained.to_str())
    content["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    content["added_tokens"] = [
        token | {"special": token["content"] in specials}
        for token in content["added_tokens"]
        if token["content"] not in BYTES
    ]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.post_processor = _template(tokenizer, "<bos>", "<eos>")
    return tokenizer


def eurobert(lines, size):
    """Llama 3's split, no unknown token, no padding token; a separator of parallel sentences."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, whole])
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, lines, size)
    reserved = [f"<|reserved_special_token_{k}|>" for k in range(4)]
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|parallel_sep|>", *reserved]
    tokenizer.add_special_tokens([_special(name) for name in names])
    frame = _template(tokenizer, "<|begin_of_text|>", "<|end_of_text|>")
    trim = processors.ByteLevel(trim_offsets=False)
    tokenizer.post_processor = processors.Sequence([trim, frame])
    return tokenizer


MODERN = {"modernbert": modernbert, "mmbert": mmbert, "eurobert": eurobert}

CONFIGS = {
    "modernbert": {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": {"__type": "AddedToken", "content": "[MASK]", "lstrip": True},
    },
    "mmbert": {
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    },
    "eurobert": {
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|end_of_text|>",
        "pad_token": "<|end_of_text|>",
        "mask_token": "<|mask|>",
    },
}
"""The special tokens in tokenizer_config.json."""


def write_folder(folder, kind, tokenizer):
    """Writes tokenizer.json and tokenizer_config.json, as in the folders of released models."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **CONFIGS[kind]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _train(tokenizer, lines, size, byte_level=True, **options):
    if byte_level:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
    tokenizer.train_from_iterator(lines, trainer)


def _special(name, lstrip=False):
    return AddedToken(name, lstrip=lstrip, normalized=False, special=True)


def _template(tokenizer, first, last):
    return processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:0 {last}:0",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (first, last)],
    )
