"""The kernels in a library: which function is which, and their instructions per multiply-accumulate."""

import os
import re
import subprocess

from instructions.loops import Instruction, tiles_of

FORMAT = re.compile(r"^(\S+):\s+file format (\S+)$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
COMMENT = re.compile(r"^ [0-9a-f]{4,} ((?:[0-9a-f]{2,8} ){1,4})")
ISAS = ("avx512", "avx2", "amx")  # in this order: found in the names of object files
PAIRS = "Pairs"  # the name that this format has in the record
MODEL = "_model."  # an object file of modelled instructions: no machine's kernels

DOT = re.compile(r"\b(dot_units|dot_wide)<\w+, PanelLayout\{([^}]*)\}, \(Compute\)(\d)(?:, (\d+))?>\(")
PLAIN = re.compile(r"\b(dot_plain)<\w+, \(PackFormat\)(\d+), (\d+)>\(")
ROWS = re.compile(r"\b(score_rows|sum_rows)<Load(\w+), (\d+)ul>\(")
Q8_ROWS = re.compile(r"\b(score|sum)_q8_rows<(\d+)ul>\(")
Q8_ALL_ROWS = re.compile(r"\b(scores|weighted_sum)_q8\(")
PAIR_ROWS = re.compile(r"\b(score|sum)_pairs_rows<(\d+)ul>\(")
PAIR_ALL_ROWS = re.compile(r"\b(scores|weighted_sum)_pairs\(")
TILES = re.compile(r"\bIntProduct<\w+, PanelLayout\{([^}]*)\}, \(Compute\)(\d)>::run\(")
BF16_TILES = re.compile(r"\bmultiply_bf16<\w+, (\d+), (\d+)>\(")
ALL_ROWS = re.compile(r"\b(scores|weighted_sum)<Load(\w+)>\(")


def enumerators(text, name):
    body = re.search(rf"enum class {name}\b[^{{]*\{{([^}}]*)\}}", text)[1]
    return re.findall(r"\bk(\w+)", re.sub(r"//.*", "", body))


class Formats:
    """Names of formats by their layout, read from the header that defines both."""

    def __init__(self, header):
        self.names = enumerators(header, "PackFormat")
        self.computes = enumerators(header, "Compute")
        numbers = {"false": 0, "true": 1}
        tables = enumerators(header, "CodeTable")
        for values in (enumerators(header, "ScaleKind"), tables):
            numbers.update({f"k{value}": number for number, value in enumerate(values)})
        float_scale = numbers["kFloat"]
        limits = dict(re.findall(r"case CodeTable::k(\w+):\s*return (\d+);", header))
        self.packed = {}
        self.unpacked = {}
        for name, fields in re.findall(r"case PackFormat::k(\w+):\s*return \{([^}]*)\};", header):
            layout = [numbers[word] if word in numbers else int(word) for word in re.split(r",\s*", fields.strip())]
            low, high, zero, groups, has_min, _, table, _, limit = layout
            limit = limit or int(limits.get(tables[table], (1 << (low + high)) - 1))
            self.packed.setdefault(tuple(layout), []).append(name)
            unpacked = (8, 0, zero, groups, has_min, float_scale, 0, 1, limit)
            self.unpacked.setdefault(unpacked, []).append(name)
        self.half_blocks = {self.of_layout(", ".join(map(str, fields))) for fields in self.unpacked if fields[3] == 2}

    def of_layout(self, fields):
        """A name for the template argument as the demangler writes it, without zeros at its end."""
        words = re.sub(r"\(\w+\)", "", fields).replace("false", "0").replace("true", "1").split(", ")
        layout = tuple(int(word) for word in words) + (0,) * (9 - len(words))
        if layout in self.packed:
            return "/".join(self.packed[layout])
        if layout in self.unpacked:
            return "/".join(self.unpacked[layout]) + ":unpacked"
        return "layout:" + ",".join(str(number) for number in layout)


def kernel_of(function, formats):
    """(kernel, format, compute, tokens) of a demangled name, or None. Tokens is "-" where the function does not say it."""
    name = function.replace("isthmus::", "").replace("(anonymous namespace)::", "")
    match = DOT.search(name)
    if match:
        return match[1], formats.of_layout(match[2]), formats.computes[int(match[3])], match[4] or "8"
    match = TILES.search(name)
    if match:
        return "tiles", formats.of_layout(match[1]), formats.computes[int(match[2])], "16"
    match = BF16_TILES.search(name)
    if match:
        return "tiles", f"{16 * int(match[1])}-rows", "Bf16", str(16 * int(match[2]))
    match = PLAIN.search(name)
    if match:
        return match[1], formats.names[int(match[2])], "F32", match[3]
    match = ROWS.search(name)
    if match:
        return match[1], match[2].upper(), "F32", match[3]
    match = Q8_ROWS.search(name)
    if match:
        return f"{match[1]}_rows", "Q8", "Int16", match[2]
    match = Q8_ALL_ROWS.search(name)
    if match:
        return match[1], "Q8", "Int16", "-"
    match = PAIR_ROWS.search(name)
    if match:
        return f"{match[1]}_rows", PAIRS, "Int16", match[2]
    match = PAIR_ALL_ROWS.search(name)
    if match:
        return match[1], PAIRS, "Int16", "-"
    match = ALL_ROWS.search(name)
    return (match[1], match[2].upper(), "F32", "-") if match else None


def figures_of(kernel, code, isa, formats):
    """[(tokens, instructions per multiply-accumulate)] of one function: of the loop with most multiplications, or, where
    several numbers of tokens are handled in one function, of each loop by its number of multiply instructions."""
    name, layout, compute, tokens = kernel
    if name == "tiles":
        # 16 x 16 outputs over 32 columns, or over the 16 that share a scale.
        macs = 16 * 16 * (16 if layout in formats.half_blocks else 32)
        loop = tiles_of(code, is_float=False, tile_macs=macs)[0]
        return [(tokens, (2 if compute == "Int16" else 1) * loop.per_mac())]
    tiles = tiles_of(code, is_float=compute == "F32")
    # 16-bit activations are two planes of bytes there: a product of theirs takes two multiplications.
    planes = 2 if isa == "avx512" and compute == "Int16" and layout != PAIRS else 1
    if tokens == "-":
        return [(f"tile{tile.multiplies}", planes * tile.per_mac()) for tile in tiles]
    return [(tokens, planes * tile.per_mac()) for tile in tiles[:1]]


def objdump(arguments, files):
    command = [os.environ.get("OBJDUMP", "objdump"), *arguments, *files]
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def functions(listing):
    """Yields (object file, its format, demangled name, instructions) of a disassembly."""
    where = kind = name = None
    code = []
    for line in [*listing.splitlines(), "end:     file format none"]:
        found = FORMAT.match(line)
        begins = FUNCTION.match(line)
        if found or begins:
            if name is not None:
                yield where, kind, name, code
            where, kind = (found[1], found[2]) if found else (where, kind)
            name = begins[1] if begins else None
            code = []
        elif name is not None and line.startswith(" "):
            code.append(Instruction(line))


def twin_of(code):
    """The function that this one only jumps to, as the compiler leaves it of two equal functions; or None."""
    code = [instruction for instruction in code if not instruction.is_filler]
    return code[0].operands if len(code) == 1 and code[0].name == "jmp" else None


def measure(files, formats):
    """{(isa, kernel, format, compute, tokens): instructions per multiply-accumulate}; of copies the worst. Empty when the
    files are not for x86."""
    found = {}
    twins = []
    for where, kind, name, code in functions(objdump(["-d", "--no-show-raw-insn", "-C"], files)):
        isa = next((isa for isa in ISAS if isa in where and MODEL not in where), None)
        kernel = kernel_of(name, formats) if isa and "x86-64" in kind else None
        if kernel is None:
            continue
        twin = twin_of(code)
        if twin is not None:
            twins.append(((isa, *kernel), (isa, *(kernel_of(twin, formats) or kernel))))
            continue
        for tokens, figure in figures_of(kernel, code, isa, formats):
            key = (isa, *kernel[:3], tokens)
            found[key] = max(figure, found.get(key, 0))
    for key, twin in twins:
        if twin in found:
            found[key] = max(found[twin], found.get(key, 0))
    return found


def compiler_of(files):
    """What the object files say compiled them, sorted, without the parts of a version that do not change code."""
    data = bytearray()
    for line in objdump(["-s", "-j", ".comment"], files).splitlines():
        match = COMMENT.match(line)
        data += bytes.fromhex(match[1]) if match else b"\0"
    names = {text.decode(errors="replace") for text in bytes(data).split(b"\0") if text}
    return ", ".join(sorted({re.sub(r"^GCC: \((\w+)[^)]*\) (\d+\.\d+).*$", r"g++ \2 (\1)", name) for name in names}))
