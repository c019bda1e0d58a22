"""Texts to tokenise, as bytes: what tokenizers stumble over. Seeded: the same on every machine."""

import random

FIXED = [
    "", " ", "  ", "\n", " \n", "\n ", "a", "'", "'s", "Hello, world. Is this-- a test?",
    "I'm you're we've they'll he'd it's don't I'M YOU'RE 'tis rock'n'roll ''s 'll've",
    "Hello, do you like tea? <|endoftext|> In the sunlit terraces of someunknownPlace.",
    "Akwirw ier", "naïve café œuvre straße İstanbul ǅ ﬁ", "x=1;y=22; z = 333_444.5e-6\t\t#\r\n",
    "def f(x):\n    return x  # twice\n\n\n    pass\n", "<<>>&&||!!??..,,;;::--__==++**//\\\\",
    "        eight spaces", "trailing spaces        ", "tab\tand\tTab\t\t", "a\u00a0b\u00a0\u00a0c \u3000d\u3000",
    "\u2003\u2009x\u2028y\u2029z\u0085w\u1680v\u202fu\u205ft", "\x00", "a\x00b\x00\x00c", "\x1c\x1d\x1e\x1f\x7f\x80\x9f",
    "1234567890 ١٢٣٤ १२३४ 一二三 Ⅷ ½ ² ⑨ 𝟘𝟙", "السلام عليكم ورحمة الله، كيف حالك؟", "नमस्ते दुनिया, आप कैसे हैं?",
    "你好，世界！今天天气很好。", "こんにちは世界、カタカナとひらがな。", "안녕하세요 세계", "שלום עולם", "Привет, мир! Ёлка.",
    "Γειά σου Κόσμε", "สวัสดีชาวโลก", "👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ☕︎ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "e\u0301 a\u0308\u0323 q\u0307\u0300",
    "\ufeffBOM", "\ufffd\ufffe\uffff", "\u200b\u200d\u200e\u2060", "\U0001F600\U000E0001\U0010FFFF",
    "ĠĊĉ Ġthe ÄĢ", "a" * 300, "ab" * 200, " " * 130, "\n" * 130, "é" * 90, "1" * 100, "!?" * 77,
]
SCRIPTS = [(0x20, 0x7E), (0x0, 0x1F), (0x80, 0x2FF), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
           (0xE00, 0xE7F), (0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
           (0x1F300, 0x1FAFF), (0x10000, 0x10FFFF)]
WORDS = ("the cat sat on mat it's don't I'll naïve 12 3.14 x_1 ( ) -- \n \n\n \t   , . ! ? \"so\" "
         "return 0; <|endoftext|> ﬁn Ünï 世界 مرحبا नमस्ते 🙂").split(" ")
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
          b"\x80", b"\xe0\x80\xaf", b"\xfe"]


def mixed(rng):
    return "".join(rng.choice(WORDS) + rng.choice(("", " ", " ", "  ", "\n"))
                   for _ in range(rng.randint(1, 12))).encode()


def of_script(rng):
    first, last = rng.choice(SCRIPTS)
    codes = [rng.randint(first, last) for _ in range(rng.randint(1, 30))]
    text = "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF)
    return "".join(rng.choice(("", "", "", " ", "a", "1")) + c for c in text).encode()


def broken(rng):
    """Text with bytes in it that are no UTF-8."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        parts += [rng.choice(BROKEN), rng.choice((mixed, of_script))(rng)[:rng.randint(0, 9)]]
    return b"".join(parts)


def random_bytes(rng):
    return rng.randbytes(rng.randint(1, 60))


def texts(count, seed=1):
    """The fixed ones and count made ones."""
    rng = random.Random(seed)
    kinds = (mixed, of_script, broken, random_bytes)
    return [text.encode() for text in FIXED] + [kinds[k % 4](rng) for k in range(count)]
