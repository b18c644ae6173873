"""Test strings for tokenizers, from a seed: every Unicode block, code, white space, emoji, marks, look-alikes."""
import random

CODE = [
    "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "<html>\n  <body class=\"x\">&nbsp;</body>\n</html>", "SELECT * FROM t WHERE a='b' AND c>=10;\n",
    "#include <vector>\r\nint main() {\r\n  return 0;\r\n}\r\n", "x = {'a': [1, 2.5e-10], \"b\": None}\n",
    "\\begin{equation}\n  e^{i\\pi} + 1 = 0\n\\end{equation}", "git commit -m \"fix: it's done\" && git push -f\n",
    "https://example.org/a/b?c=d&e=%20f#g", "C:\\Users\\me\\file.txt", "0x1F 0b1010 1_000_000 3.14159 1e-9 10,000.50",
]
WORDS = ("the of and to in is you that it he was for on are as with his they I at be this have from or one had by "
         "word but not what all were we when your can said there use an each which she do how their if will up other "
         "about out many then them these so some her would make like him into time has look two more write go see "
         "number no way could people my than first water been call who oil its now find long down day did get come "
         "made may part Tokenization internationalization antidisestablishmentarianism don't I'll we've They're he's "
         "it'd can't I'm 'tis O'Neill rock'n'roll DON'T WE'LL you'RE x's").split()
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵🇰🇷", "❤️", "☺", "🧑🏿‍🚀", "1️⃣", "©️", "🤷‍♀️", "🫠", "⌛"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028",
          "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\n\n", "\n\n\n", " \n", "\n ", "\t\t", "    "]
SCRIPTS = ["Привет, как дела?", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "বাংলা ভাষা", "வணக்கம்",
           "สวัสดีชาวโลก", "你好，世界。今天天气很好！", "こんにちは世界カタカナ", "안녕하세요 세계", "ᚠᛇᚻ᛫ᛒᛦᚦ", "Ελληνικά", "Việt Nam đẹp",
           "Zażółć gęślą jaźń", "İstanbul'da ığ", "ﬁ ﬂ ﷺ ẞ ß ſ 'ſ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "①②③ ⅠⅡⅢ ½¾ ²³ ٠١٢٣ ०१२ 〇一二", "e\u0301 a\u0308\u0323",
           "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", "ไทย ລາວ ខ្មែរ မြန်မာ", "ⴰⵎⴰⵣⵉⵖ", "አማርኛ", "ᐃᓄᒃᑎᑐᑦ", "꧋ꦲꦏ꧀ꦱꦫꦗꦮ"]
LOOKALIKES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<start_of_turn>",
              "<end_of_turn>", "<bos>", "<eos>", "<pad>", "<unk>", "<s>", "</s>", "<0x0A>", "<0xFF>", "<tool_call>",
              "</tool_call>", "<|im_start", "im_end|>", "<|", "|>", "< |im_end| >", "<unused7>", "<mask>", "[PAD151665]",
              "<repo_name>", "<file_sep>", "<|fim_prefix|>", "<table>", "</td>", "[multimodal]", "<start_of_image>", "▁",
              "▁▁", "<|endoftext|><|im_start|>", "<|im_start|>user\nhi<|im_end|>\n"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "—", "–", "“", "”", "’", "«", "»", "…", "。", "、", "！", "''", "'''",
                                                           "$$", "€", "£", "±", "×", "→", "∑", "''s", "'S", "'LL", "'Re"]


def code_points(rng):
    """A character of any plane that UTF-8 can write, assigned or not."""
    while True:
        point = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x20000),
                            rng.randrange(0x110000)])
        if not 0xD800 <= point < 0xE000:
            return chr(point)


def blocks():
    """One string per 128 code points, so that each block and each character of planes 0 and 1 occurs."""
    for start in range(0, 0x20000, 128):
        if not 0xD800 <= start < 0xE000:
            yield "".join(chr(c) for c in range(start, start + 128))
    for start in range(0x20000, 0x110000, 0x1000):
        yield " ".join(chr(c) for c in range(start, start + 0x1000, 0x111))


def piece(rng):
    kind = rng.randrange(13)
    if kind < 3:
        return rng.choice(WORDS)
    if kind == 3:
        return str(rng.randrange(10 ** rng.randrange(1, 12)))
    if kind == 4:
        return rng.choice(SPACES)
    if kind == 5:
        return rng.choice(SPACES) * rng.randrange(1, 40)
    if kind == 6:
        return rng.choice(EMOJI)
    if kind == 7:
        return rng.choice(SCRIPTS)
    if kind == 8:
        return rng.choice(LOOKALIKES)
    if kind == 9:
        return "".join(rng.choice(PUNCTUATION) for _ in range(rng.randrange(1, 6)))
    if kind == 10:
        return rng.choice(CODE)
    if kind == 11:
        return "".join(code_points(rng) for _ in range(rng.randrange(1, 8)))
    return rng.choice("aeiou \n'é0") * rng.randrange(1, 70)


def valid_strings(seed, count):
    """`count` strings of valid UTF-8: all blocks first, then mixtures, the same for the same seed."""
    rng = random.Random(seed)
    out = list(blocks()) + CODE + SCRIPTS + EMOJI + LOOKALIKES + PUNCTUATION + SPACES
    while len(out) < count:
        glue = rng.choice(["", "", " ", "\n"])
        out.append(glue.join(piece(rng) for _ in range(rng.randrange(1, 12))))
    return out[:count]


def broken_strings(seed, count):
    """Byte strings that are not UTF-8: cut, stray and random bytes among valid text."""
    rng = random.Random(seed)
    out = []
    while len(out) < count:
        data = bytearray("".join(piece(rng) for _ in range(rng.randrange(1, 6))).encode())
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data) + 1)
            if rng.randrange(2) and data:
                data[at % len(data)] = rng.randrange(256)
            else:
                data[at:at] = bytes(rng.randrange(0x80, 0x100) for _ in range(rng.randrange(1, 4)))
        try:
            data.decode()
        except UnicodeDecodeError:
            out.append(bytes(data))
    return out
