"""The tokenizers package as GPT-2's tokenizer of any bytes."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PRE_SPLIT = pre_tokenizers.ByteLevel(add_prefix_space=False)
REPLACEMENT = "\ufffd"


def byte_characters():
    """byte -> the character that stands for it in vocab.json."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(256 + n) for n, b in enumerate(hidden)}}


CHARACTERS = byte_characters()


def load(vocab, merges, special=()):
    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = PRE_SPLIT
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return tokenizer


def encode(tokenizer, text):
    """The ids of bytes. The package takes no broken UTF-8: each such byte is split as U+FFFD, and
    its pieces are then tokenised with the bytes themselves."""
    decoded = text.decode("utf-8", "surrogateescape")
    if not any(0xDC80 <= ord(c) <= 0xDCFF for c in decoded):
        return tokenizer.encode(decoded, add_special_tokens=False).ids
    shown = "".join(REPLACEMENT if 0xDC80 <= ord(c) <= 0xDCFF else c for c in decoded)
    ids = []
    for _, (begin, end) in PRE_SPLIT.pre_tokenize_str(shown):
        piece = decoded[begin:end].encode("utf-8", "surrogateescape")
        tokens = tokenizer.model.tokenize("".join(CHARACTERS[byte] for byte in piece))
        ids += [token.id for token in tokens]
    return ids
