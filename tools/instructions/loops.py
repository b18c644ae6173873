"""The loops of a disassembled x86 function, and the multiplications in them."""

import re

INSTRUCTION = re.compile(r"^ +([0-9a-f]+):\t(.*)$")
PREFIXES = {"bnd", "cs", "data16", "ds", "notrack", "rep", "repz"}
ENDS = ("ret", "ud2", "hlt")
TARGET = re.compile(r"^([0-9a-f]+)\b")
WIDTHS = (("%zmm", 64), ("%ymm", 32), ("%xmm", 16))
# Bytes of a register per multiplication.
INTEGER = {"vpdpbusd": 1, "vpmaddubsw": 1, "vpdpwssd": 2, "vpmaddwd": 2}
TILE = {"tdpbsud", "tdpbf16ps"}
FLOAT = re.compile(r"^vfn?m(add|sub)\d*ps$")


class Instruction:

    def __init__(self, line):
        """From a line of objdump; ValueError when the line is none."""
        match = INSTRUCTION.match(line)
        if not match:
            raise ValueError(line)
        self.address = int(match[1], 16)
        words = match[2].split()
        while len(words) > 1 and words[0] in PREFIXES:
            words = words[1:]
        self.name = words[0].split(",")[0] if words else ""
        self.operands = " ".join(words[1:])
        self.is_filler = self.name.startswith("nop") or (self.name, self.operands) == ("xchg", "%ax,%ax")

    def width(self):
        return next((width for register, width in WIDTHS if register in self.operands), 0)

    def falls_through(self):
        return not self.name.startswith("jmp") and not self.name.startswith(ENDS)

    def target(self):
        match = TARGET.match(self.operands) if self.name.startswith("j") else None
        return int(match[1], 16) if match else None


def multiplications(code, is_float, tile_macs=0):
    """Multiply-accumulates of each instruction. Those of the other kind are overhead, and so is a vpmaddwd that only widens
    the sums of vpmaddubsw. `tile_macs`: only products of tiles count, as many each (a tile's shape is not in the code)."""
    if tile_macs > 0:
        return [tile_macs if instruction.name in TILE else 0 for instruction in code]
    widens = any(i.name == "vpmaddubsw" for i in code)
    counts = []
    for instruction in code:
        if is_float:
            bytes_each = 4 if FLOAT.match(instruction.name) else None
        else:
            bytes_each = INTEGER.get(instruction.name)
            if widens and instruction.name == "vpmaddwd":
                bytes_each = None
        counts.append(instruction.width() // bytes_each if bytes_each else 0)
    return counts


def successors(code):
    """For each instruction, the indices of those that may follow it within the function."""
    at = {instruction.address: index for index, instruction in enumerate(code)}
    edges = []
    for index, instruction in enumerate(code):
        targets = [at[instruction.target()]] if instruction.target() in at else []
        if instruction.falls_through() and index + 1 < len(code):
            targets.append(index + 1)
        edges.append(targets)
    tables = [targets for instruction, targets in zip(code, edges)
              if instruction.name.startswith("jmp") and instruction.operands.startswith("*")]
    if tables:
        labels = hidden_labels(code, edges)
        for targets in tables:
            targets += labels
    return edges


def hidden_labels(code, edges):
    """Where a jump through a table may go: code that nothing seen here leads to. First what no jump names, then, from the
    start of the function on, what is still not reached (a loop that begins at a label)."""
    led_to = {target for index, targets in enumerate(edges) if not code[index].is_filler for target in targets}
    candidates = [index for index in range(1, len(code)) if not code[index].is_filler]
    candidates.sort(key=lambda index: index in led_to)
    labels = []
    reached = set()
    for index in [0, *candidates]:
        if index not in reached:
            labels.append(index)
            pending = [index]
            while pending:
                node = pending.pop()
                if node not in reached:
                    reached.add(node)
                    pending += edges[node]
    return labels[1:]


def returning_edges(edges):
    """Edges back to an instruction that led here, as header -> [last instruction of a round]."""
    found = {}
    state = [0] * len(edges)  # 1: on the way from the entry to here, 2: done
    stack = [(0, iter(edges[0]))] if edges else []
    while stack:
        node, rest = stack[-1]
        state[node] = 1
        following = next(rest, None)
        if following is None:
            state[node] = 2
            stack.pop()
        elif state[following] == 1:
            found.setdefault(following, []).append(node)
        elif state[following] == 0:
            stack.append((following, iter(edges[following])))
    return found


def loops_of(code):
    """Sets of indices, the smallest first: what leads to the end of a round without passing the header again."""
    edges = successors(code)
    before = [[] for _ in code]
    for index, targets in enumerate(edges):
        for target in targets:
            before[target].append(index)
    loops = []
    for header, ends in returning_edges(edges).items():
        body = {header}
        pending = list(ends)
        while pending:
            index = pending.pop()
            if index not in body:
                body.add(index)
                pending += before[index]
        loops.append(body)
    return sorted(loops, key=lambda body: (len(body), min(body)))


class Tile:
    """A piece of a function that multiplies. `instructions` and `macs` are those of one round."""

    def __init__(self, code, counts, body):
        self.instructions = sum(not code[index].is_filler for index in body)
        self.macs = sum(counts[index] for index in body)
        self.multiplies = sum(counts[index] > 0 for index in body)

    def per_mac(self):
        return self.instructions / self.macs


def tiles_of(code, is_float, tile_macs=0):
    """The loops that hold multiplications outside the loops inside them, those with most of them first, equal ones by
    instructions per multiplication. The whole function counts where it is not in a loop; with tiles, whose first product
    stands before the loop, only where there is no loop at all."""
    counts = multiplications(code, is_float, tile_macs)
    bodies = [*loops_of(code), set(range(len(code)))]
    own = [0] * len(bodies)
    for index, macs in enumerate(counts):
        if macs > 0:
            own[next(number for number, body in enumerate(bodies) if index in body)] += macs
    tiles = [(macs, Tile(code, counts, body)) for macs, body in zip(own, bodies) if macs > 0]
    if tile_macs > 0 and len(tiles) > 1 and own[-1] > 0:
        tiles.pop()
    tiles.sort(key=lambda pair: (pair[0], pair[1].per_mac()), reverse=True)
    return [tile for _, tile in tiles]
