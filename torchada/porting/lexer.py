"""C++ and CUDA text as tokens, by one compiled regular expression.

`tokens` cuts a text into all its tokens: joined, they are the text again. `scanner` makes an expression that stops only
at chosen words and at what must be stepped over whole (comments, literals, messages of directives), which is what makes
porting fast. Texts are str; bytes that no encoding explains are surrogates (`surrogateescape`) and live through both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Unrolled loops: a comment or a literal is taken in long steps, and never read twice.
BLOCK = r"/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?"  # an unterminated comment reaches the end of the text
LINE = r"//[^\n\\]*(?:\\(?:\r?\n|.)?[^\n\\]*)*"  # a continued line comment goes on
STRING = r'"[^"\\\n]*(?:\\(?:\r\n|.)[^"\\\n]*)*"'
CHAR = r"'[^'\\\n]*(?:\\(?:\r\n|.)[^'\\\n]*)*'"
OPENING = r'"(?P<{0}>[^()\\\s"]{{0,16}})\('
RAW = r'R"(?P<{0}>[^()\\\s"]{{0,16}})\(.*?\)(?P={0})"'
GAP = r"(?:[ \t\f\v]|\\\r?\n|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*"  # white space that a directive may hold
SPACE = re.compile(r"(?:\s|\\\r?\n|/\*[^*]*(?:\*(?!/)[^*]*)*\*/|//[^\n]*)*")  # white space between any two tokens
PATH = r'<[^>\n]+>|"[^"\n]+"'
INCLUDE = rf"\#{GAP}(?:include_next|include|import)\b{GAP}(?:{PATH})"
MESSAGE = rf"\#{GAP}(?:error|warning)\b[^\n\\]*(?:\\(?:\r?\n|.)?[^\n\\]*)*"

KINDS = (
    ("comment", rf"{BLOCK}|{LINE}"),
    ("raw", r"(?:u8|[uUL])?" + RAW.format("edge")),
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


class Token(NamedTuple):
    """A piece of the text: its *kind* (a name of `KINDS`), its *text* and where it starts (in characters)."""

    kind: str
    text: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    """All tokens of *text*, in order; their texts joined are *text*."""
    fresh = True  # nothing but white space and comments since the line began: a # begins a directive
    position, end = 0, len(text)
    while position < end:
        match = TOKEN.match(text, position)
        assert match is not None  # the last sign is any character
        kind = "raw" if match["raw"] is not None else match.lastgroup or "sign"
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
    rf"{BLOCK}|{LINE}|{STRING}|{CHAR}|(?:u8|[uUL])?{RAW.format('edge')}"
    r"|(?P<word>\w+(?:(?:\\\r?\n)+\w+)+)|\w+|(?P<comment>/(?:\\\r?\n)+[/*])",
    re.DOTALL,
)
CONTINUED = re.compile(r"\\\r?\n")


def whole(text: str) -> str:
    """*text* with the words whole that line continuations cut in two: the continuations follow after them."""
    if not BROKEN.search(text):
        return text

    def put_together(match: re.Match[str]) -> str:
        if match["word"] or match["comment"]:
            return CONTINUED.sub("", match[0]) + "".join(CONTINUED.findall(match[0]))
        return match[0]

    return SPLICED.sub(put_together, text)


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
    endless: set[str] = set()  # openings of raw literals that nothing closes: what follows them is code
    while position >= 0:
        begin, position = position, -1
        for match in pattern.finditer(text, begin):
            start, end = match.span()
            if text[end - 1] != "(" or text[start] not in "RuUL":
                yield start, end
                continue
            quote = text.index('"', start)
            close = f'){text[quote + 1 : end - 1]}"'
            found = -1 if close in endless else text.find(close, end)
            if found < 0:
                endless.add(close)
                position = quote
            else:
                position = found + len(close)
                yield start, position
            break
