"""Makes a tokenizer of each supported kind, trained on `LINES`."""

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from xlj import phrasebook

LINES = [line for _, line in zip(range(1500), phrasebook.text_lines("de"), strict=False)]
BERT = ["[PAD]", "[unused]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
XLMR = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##")
    options = {"special_tokens": BERT, "show_progress": False}
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=300, **options))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3))
    return tokenizer


def byte_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    options = {"special_tokens": XLMR[:4], "show_progress": False, **alphabet}
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=400, **options))
    # The id of <mask> is above those of the model, but not the last id.
    tokenizer.add_special_tokens(["<mask>", "<ent>"])
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    options = {"special_tokens": XLMR, "unk_token": "<unk>", "show_progress": False}
    tokenizer.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=300, **options))
    return tokenizer


TOKENIZERS = {"wordpiece": wordpiece, "byte_bpe": byte_bpe, "sentencepiece": unigram}
