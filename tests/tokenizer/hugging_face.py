"""The same vocabularies as Hugging Face `tokenizers` objects, built from what a GGUF file holds."""
import functools

import gguf
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def read_vocab(path):
    fields = gguf.GGUFReader(path).fields

    def value(key, default=None):
        return fields[key].contents() if key in fields else default

    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "model": value("tokenizer.ggml.model"),
        "pre": value("tokenizer.ggml.pre", "default"),
        "tokens": [bytes(tokens.parts[i]).decode("utf-8", "surrogateescape") for i in tokens.data],
        "kinds": value("tokenizer.ggml.token_type"),
        "scores": value("tokenizer.ggml.scores"),
        "merges": value("tokenizer.ggml.merges"),
        "space_prefix": value("tokenizer.ggml.add_space_prefix", True),
    }


def byte_alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def missing_bytes(vocab):
    if vocab["model"] != "gpt2":
        return set()
    known = set(vocab["tokens"])
    out = set()
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or (byte >= 0xA1 and byte != 0xAD)
        character = chr(byte) if printable else None
        if character is None:
            rank = sum(1 for b in range(byte) if not (0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)))
            character = chr(256 + rank)
        if character not in known:
            out.add(byte)
    return out


def pre_tokenizer(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def split(pattern):
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated"), plain])

    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name == "qwen2":
        return split(QWEN2)
    if name == "llama-bpe":
        return split(LLAMA3)
    if name == "default":  # llama.cpp's own; the nearest in Hugging Face's terms
        return pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(r"[\p{P}$+<=>^~|]+"), behavior="isolated"),
            pre_tokenizers.Split(
                tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
                behavior="isolated"),
            pre_tokenizers.Split(tokenizers.Regex(r"\p{N}+"), behavior="isolated"),
            pre_tokenizers.Split(tokenizers.Regex(r"[0-9][0-9][0-9]"), behavior="isolated"), plain])
    raise ValueError(name)


def merges_from_scores(tokens, scores, kinds):
    """The merge list of a SentencePiece vocabulary: every way to split a token in two tokens, best scores first."""
    normal = {t: i for i, t in enumerate(tokens) if kinds[i] == 1}
    merges = []
    for token in sorted(normal, key=lambda t: (-scores[normal[t]], normal[t])):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in normal and token[i:] in normal]
        merges += sorted(pairs, key=lambda p: (normal[p[0]], normal[p[1]]))
    return merges


class HuggingFace:
    """`plain` knows the user-defined tokens only, `parsing` the control tokens too."""

    def __init__(self, vocab):
        self.vocab = vocab
        self.plain = self.make(vocab, {4})
        self.parsing = self.make(vocab, {2, 3, 4})

    def make(self, vocab, kinds):
        byte_level = vocab["model"] == "gpt2"
        tokens = vocab["tokens"]
        merges = ([tuple(m.split(" ")) for m in vocab["merges"]] if byte_level else
                  merges_from_scores(tokens, vocab["scores"], vocab["kinds"]))
        tokenizer = tokenizers.Tokenizer(models.BPE(
            vocab={t: i for i, t in enumerate(tokens)}, merges=merges, byte_fallback=not byte_level,
            unk_token=None if byte_level else "<unk>", fuse_unk=not byte_level,
            ignore_merges=vocab["pre"] == "llama-bpe"))
        if byte_level:
            tokenizer.pre_tokenizer = pre_tokenizer(vocab["pre"])
            tokenizer.decoder = decoders.ByteLevel()
        else:
            tokenizer.normalizer = normalizers.Replace(" ", "▁")
        added = [tokenizers.AddedToken(t, normalized=False, special=vocab["kinds"][i] == 3)
                 for i, t in enumerate(tokens) if vocab["kinds"][i] in kinds]
        tokenizer.add_tokens(added)
        return tokenizer

    def encode(self, text, parse):
        return (self.parsing if parse else self.plain).encode(text, add_special_tokens=False).ids

    def known_difference(self, text, agree):
        """Which classes of docs/tokenizers.md explain a difference over `text`: "a" or "a, b", or None. `agree(text)` says
        whether Isthmus and Hugging Face give the same ids. A class explains a difference when the two agree as soon as
        its characters are replaced by others that they treat alike."""
        changes = {"newer characters": replace_newer_characters(text),
                   "missing bytes": replace_missing_bytes(missing_bytes(self.vocab), text),
                   "overlapping specials": part_overlapping_specials(self.vocab, text),
                   "long s": text.replace("ſ", "f")}
        apply = [name for name, changed in changes.items() if changed != text]
        for name in apply:
            if agree(changes[name]):
                return name
        if apply == ["newer characters", "missing bytes"] and agree(
                replace_missing_bytes(missing_bytes(self.vocab), changes["newer characters"])):
            return ", ".join(apply)
        return None


UNASSIGNED = "\U00050000"  # to every version of Unicode so far


@functools.cache
def newer_characters():
    """Characters that Unicode 15.1, the version of llama.cpp's tables, does not know and the regular expressions of
    `tokenizers` do."""
    import unicodedata2
    unknown = "".join(chr(c) for c in range(0x110000)
                      if not 0xD800 <= c < 0xE000 and unicodedata2.category(chr(c)) == "Cn")
    return set(normalizers.Replace(tokenizers.Regex(r"\p{Cn}"), "").normalize_str(unknown))


def replace_newer_characters(text):
    return "".join(UNASSIGNED if c in newer_characters() else c for c in text)


def replace_missing_bytes(missing, text):
    """Both references leave out bytes without a token: Hugging Face before merging, so that the neighbours may join,
    llama.cpp after."""
    return "".join("é" if missing.intersection(c.encode()) else c for c in text)


def part_overlapping_specials(vocab, text):
    """Where spellings overlap, Hugging Face takes the leftmost, llama.cpp the longest: a space breaks the later one."""
    found = []
    for i, token in enumerate(vocab["tokens"]):
        if vocab["kinds"][i] in (3, 4) and token in text:
            at = text.find(token)
            while at >= 0:
                found.append((at, at + len(token)))
                at = text.find(token, at + 1)
    found.sort()
    cuts = sorted({b[0] + 1 for a, b in zip(found, found[1:]) if a[1] > b[0] and b[1] > a[1]}, reverse=True)
    for cut in cuts:
        text = text[:cut] + " " + text[cut:]
    return text


def build(vocab, stops):
    """`stops`: tokens that llama.cpp, and Isthmus with it, takes for control tokens because of their spelling."""
    kinds = [3 if i in stops else kind for i, kind in enumerate(vocab["kinds"])]
    return HuggingFace(vocab | {"kinds": kinds})
