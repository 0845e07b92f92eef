"""C++ and CUDA text as tokens, by one compiled regular expression.

`tokens` cuts a text into all its tokens: joined, they are the text again. `scanner` makes an expression that stops only
at chosen words and at what must be stepped over whole (comments, literals, messages of directives), which is what makes
porting fast. Texts are str; bytes that no encoding explains are surrogates (`surrogateescape`) and live through both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

# Unrolled loops: a comment or a literal is taken in long steps, and never read twice.
BLOCK = r"/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?"  # an unterminated comment reaches the end of the text
LINE = r"//[^\n\\]*(?:\\(?:\r?\n|.)?[^\n\\]*)*"  # a continued line comment goes on
STRING = r'"[^"\\\n]*(?:\\(?:\r\n|.)[^"\\\n]*)*"'
CHAR = r"'[^'\\\n]*(?:\\(?:\r\n|.)[^'\\\n]*)*'"
OPENING = r'"(?P<{0}>[^()\\\s"]{{0,16}})\('
CLOSING = re.compile(r'\)([^()\\\s"]{0,16})"')
GAP = r"(?:[ \t\f\v]|\\\r?\n|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*"  # white space that a directive may hold
SPACE = re.compile(r"(?:\s|\\\r?\n|/\*[^*]*(?:\*(?!/)[^*]*)*\*/|//[^\n]*)*")  # white space between any two tokens
PATH = r'<[^>\n]+>|"[^"\n]+"'
INCLUDE = rf"\#{GAP}(?:include_next|include|import)\b{GAP}(?:{PATH})"
MESSAGE = rf"\#{GAP}(?:error|warning)\b[^\n\\]*(?:\\(?:\r?\n|.)?[^\n\\]*)*"

KINDS = (
    ("comment", rf"{BLOCK}|{LINE}"),
    ("raw", r"(?:u8|[uUL])?R" + OPENING.format("edge")),
    ("string", rf"(?:u8|[uUL])?{STRING}"),
    ("char", rf"(?:u8|[uUL])?{CHAR}"),
    ("number", r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*"),
    ("word", r"(?:[^\W\d]|\$)(?:\w|\$)*"),
    ("include", INCLUDE),
    ("message", MESSAGE),
    ("directive", rf"\#{GAP}[a-z_]+\b"),
    ("continuation", r"\\\r?\n"),
    ("newline", r"\r?\n"),
    ("space", r"[^\S\r\n]+|\r"),
    ("sign", r"::|->\*?|<=>|<<=?|>>=?|[-+*/%&|^!=<>]=|&&|\|\||\#\#|\+\+|--|\.\.\.|."),
)
TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS), re.DOTALL)
PLAIN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS if kind != "raw"), re.DOTALL)


class Token(NamedTuple):
    """A piece of the text: its *kind* (a name of `KINDS`), its *text* and where it starts (in characters)."""

    kind: str
    text: str
    start: int


class Raws:
    """Where the raw literals of one *text* end, however many open that nothing closes."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def last(self) -> dict[str, int]:
        """Where each delimiter closes for the last time."""
        return {match[1]: match.start() for match in CLOSING.finditer(self.text)}

    def end(self, delimiter: str, inside: int) -> int:
        """The end of the literal whose content begins at *inside*; -1: nothing closes it, and what follows is code."""
        if self.last.get(delimiter, -1) < inside:
            return -1
        return self.text.index(f'){delimiter}"', inside) + len(delimiter) + 2


def tokens(text: str) -> Iterator[Token]:
    """All tokens of *text*, in order; their texts joined are *text*."""
    raws = Raws(text)
    fresh = True  # nothing but white space and comments since the line began: a # begins a directive
    position, end = 0, len(text)
    while position < end:
        match = TOKEN.match(text, position)
        assert match is not None  # the last sign is any character
        if match["raw"] is not None:
            stop = raws.end(match["edge"], match.end())
            if stop >= 0:
                yield Token("raw", text[position:stop], position)
                position, fresh = stop, False
                continue
            match = PLAIN.match(text, position)
            assert match is not None
        kind = match.lastgroup or "sign"
        if kind in ("include", "message", "directive") and not fresh:
            yield Token("sign", "#", position)
            position += 1
            continue
        yield Token(kind, match[0], position)
        position = match.end()
        if kind == "newline":
            fresh = True
        elif kind not in ("space", "comment", "continuation"):
            fresh = False


BROKEN = re.compile(r"\\\r?\n[\w/*]")
SPLICED = re.compile(
    rf"{BLOCK}|{LINE}|{STRING}|{CHAR}|(?:u8|[uUL])?R{OPENING.format('edge')}"
    r"|(?P<word>\w+(?:(?:\\\r?\n)+\w+)+)|\w+|(?P<comment>/(?:\\\r?\n)+[/*])",
    re.DOTALL,
)
CONTINUED = re.compile(r"\\\r?\n")


def whole(text: str) -> str:
    """*text* with the words whole that line continuations cut in two: the continuations follow after them."""
    if not BROKEN.search(text):
        return text

    raws = Raws(text)
    pieces: list[str] = []
    last = position = 0
    while position >= 0:
        begin, position = position, -1
        for match in SPLICED.finditer(text, begin):
            if match["edge"] is not None:
                stop = raws.end(match["edge"], match.end())
                position = stop if stop >= 0 else match.start("edge") - 1  # else the quote begins what it begins
                break
            if match["word"] or match["comment"]:
                pieces += [text[last : match.start()], CONTINUED.sub("", match[0]), *CONTINUED.findall(match[0])]
                last = match.end()
    return "".join([*pieces, text[last:]])


def trie(words: Iterable[str]) -> str:
    """An expression for exactly *words*, without trying them one by one."""
    tree: dict[str, dict] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}

    def pattern(node: dict[str, dict]) -> str:
        branches = [re.escape(letter) + pattern(below) for letter, below in sorted(node.items()) if letter]
        if not branches:
            return ""
        joined = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
        return f"(?:{joined})?" if "" in node else joined

    return pattern(tree)


# What begins or continues a name of CUDA's libraries, wherever in a word it stands: every name the tables know has one.
KEYS = (
    r"cu(?:(?=[A-Z]|da|blas|dnn|fft|rand|solver|sparse|pti|tensor|vid|dss|dla)\w*|(?<![A-Za-z0-9]cu)(?:te|tlass)?(?!\w))",
    r"C(?:U(?:(?=DA|BLAS|DNN|FFT|RAND|SOLVER|SPARSE|PTI|TENSOR|VID|DSS|TE|TLASS|_|[a-z]|G[LP]|C)\w*|(?!\w))|uda\w*)",
    r"n(?<![A-Za-z0-9]n)(?:v|ccl|pp)\w*",
    r"N(?<![A-Za-z0-9]N)(?:V|CCL|PP|vEnc)\w*",
)
KEY = re.compile("|".join(KEYS))


def scanner(words: Iterable[str] = (), odd: bool = True) -> re.Pattern[str]:
    """An expression whose matches are the rests of words from one of `KEYS` on, whole *words*, ``#include`` directives,
    and what holds no code: comments, literals, messages of ``#error``; if *odd*, also where raw literals open, and
    numbers with separators, which few texts have (`ODD` tells).

    Every branch begins with a fixed character, so that `re` skips other text in C; the fewer of these, the faster.
    """
    branches = [rf"/(?:{BLOCK[1:]}|{LINE[1:]})", STRING, CHAR, rf"\#(?:{INCLUDE[2:]}|{MESSAGE[2:]})", *KEYS]
    if odd:
        for number, first in enumerate("RuUL"):
            rest = {"R": "", "u": "8?R"}.get(first, "R")
            branches.append(rf"{first}(?<!\w{first}){rest}{OPENING.format(f'edge{number}')}")
        branches += [rf"{digit}(?<!\w{digit})[\w.]*(?:'\w+)+" for digit in "0123456789"]
    exact: dict[str, list[str]] = {}
    for word in words:
        exact.setdefault(word[0], []).append(word[1:])
    # Before the keys: a word of the caller's may begin with one.
    own = [rf"{first}(?<![\w$]{first})(?:{trie(rest)})(?!\w)" for first, rest in sorted(exact.items())]
    return re.compile("|".join([*own, *branches]), re.DOTALL)


ODD = re.compile(r"""R"[^()\\\s"]{0,16}\(|'(?<=[0-9a-fA-F]')[0-9a-fA-F]""")


def stops(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where the matches of a scanner's *pattern* begin and end in *text*, raw literals whole."""
    position = 0
    raws = Raws(text)
    while position >= 0:
        begin, position = position, -1
        for match in pattern.finditer(text, begin):
            start, end = match.span()
            if text[end - 1] != "(" or text[start] not in "RuUL":
                yield start, end
                continue
            quote = text.index('"', start)
            stop = raws.end(text[quote + 1 : end - 1], end)
            position = stop if stop >= 0 else quote
            if stop >= 0:
                yield start, stop
            break
