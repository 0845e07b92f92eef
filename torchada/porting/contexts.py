"""Rules that need more of the text than a name: conditions, dispatch keys, inline PTX, dlopen, definitions."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from .lexer import SPACE, STRING
from .tables import Tables

REACH = 4000  # how far back a rule looks: bounds the work on a text without line ends
GAP = SPACE.pattern
IMPLS = ("TORCH_LIBRARY_IMPL", "STABLE_TORCH_LIBRARY_IMPL")
ASM = ("asm", "__asm", "__asm__")
ALLOWED = "programmaticStreamSerializationAllowed"
WORDS = (
    *IMPLS,
    *ASM,
    ALLOWED,
    "dlopen",
    "dlsym",
    "Device",
    "__pipeline_memcpy_async",
    "__pipeline_commit",
    "__pipeline_wait_prior",
)
LIBCUDACXX = re.compile(
    rf"{GAP}::{GAP}((?:atomic|barrier|pipeline|thread_scope|memcpy_async|ptx|latch|semaphore|counting_semaphore|binary_"
    r"semaphore|aligned_size_t|annotated_ptr|access_property|device|proclaim|minimum|maximum|stream_ref|mr)\w*)"
)

KEY = re.compile(rf"{GAP}\({GAP}(?:/\*.*?\*/|//[^\n]*|[^,()])*,{GAP}(\w+){GAP},", re.DOTALL)
COMPARED = re.compile(rf"{GAP}(>=|<=|==|!=|<(?!<)|>(?!>)){GAP}(\d+)[uUlL]*(?![\w.'])({GAP})(.?)", re.DOTALL)
COMPARES = re.compile(
    r"(?<![\w.'])(\d+)[uUlL]*((?:\s|\\\r?\n|/\*[^*]*\*/)*)(>=|<=|==|!=|<|>)((?:\s|\\\r?\n|/\*[^*]*\*/)*)$"
)
COMPARATOR = re.compile(rf"{GAP}(?:>=|<=|==|!=|<(?!<)|>(?!>))")
FLIPPED = {">=": "<=", "<=": ">=", "<": ">", ">": "<"}
OPENED = re.compile(rf'{GAP}\({GAP}"lib(\w+)\.so((?:\.\d+)*)"')
BODY = re.compile(rf"{GAP}(?:(?:\w+\b(?:{GAP}\((?:[^()]|\([^()]*\))*\))?|->[^{{}};]*|\[\[[^\]]*\]\]){GAP})*\{{")
DEVICE = re.compile(rf'{GAP}(?:\w+{GAP})?[({{]{GAP}"(cuda)(?::\d+)?"{GAP}[)}}]')
SYMBOL = re.compile(rf'{GAP}\([^"();]{{0,200}},{GAP}"(\w+)"')
PTX_ERROR = "torchada: inline PTX has no MUSA counterpart: write this in C++"
PTX_HEAD = re.compile(rf"(?:{GAP}(?:volatile|__volatile__|__volatile|inline|goto)\b)*{GAP}\(")
PTX = re.compile(
    r"\b[a-z]\w*\.[a-z]|\.(?:reg|pred|version)\b|%%?(?:laneid|warpid|smid|clock|tid|ctaid|globaltimer)|trap;"
)
AMD = re.compile(r"(?:\\n|\\t|[\s;])*(?:v|s|ds|buffer|global|flat|scratch|image)_[a-z]")  # GCN: for another GPU
LABEL = re.compile(r"[\w.$@]*")  # what a declaration is called in the object file
BRACKET = re.compile(rf"""/\*.*?\*/|//[^\n]*|{STRING}|'(?:[^'\\]|\\.)+'|[()]""", re.DOTALL)
BRACE = re.compile(rf"""/\*.*?\*/|//[^\n]*|{STRING}|'(?:[^'\\]|\\.)+'|[{{}}]""", re.DOTALL)
OPERAND = re.compile(r'"=[^"]*"\s*\(')


DIRECTIVE = re.compile(r'\ufeff?(?:[^"\n#]*\*/)?[ \t]*#(?:[ \t]|\\\r?\n|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*([a-z]+)')


class Edit(NamedTuple):
    """Characters *start* to *end* become *new*."""

    start: int
    end: int
    new: str
    evidence: str


def previous(text: str, position: int) -> int:
    """Where the character before *position* is that is no white space; -1: there is none near."""
    stretch = text[max(0, position - REACH) : position].rstrip()
    return position - min(position, REACH) + len(stretch) - 1 if stretch else -1


def qualifiers(text: str, position: int) -> tuple[str, ...]:
    """The names before the name at *position*: ``("at", "cuda")`` for ``at::cuda::x``."""
    names: list[str] = []
    while len(names) < 6:
        at = previous(text, position)
        if at < 1 or text[at - 1 : at + 1] != "::":
            break
        end = previous(text, at - 1) + 1
        start = end
        while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        if start == end:
            break
        names.insert(0, text[start:end])
        position = start
    return tuple(names)


def directive(text: str, position: int) -> str:
    """The name of the preprocessor directive that the place is in (``"if"``); empty: none."""
    start = position
    floor = max(0, position - REACH)
    while True:
        start = text.rfind("\n", floor, start)
        if start < 0 and floor:
            return ""
        if start < 0 or (text[start - 1 : start] != "\\" and text[start - 2 : start] != "\\\r"):
            break
    match = DIRECTIVE.match(text, start + 1)
    return match[1] if match and match.start(1) < position else ""


def in_comment(text: str, position: int) -> bool:
    """Whether the place is in a comment, as far as its line and the text near before it tell."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    near = text[max(0, position - REACH) : position]
    return "//" in line or near.rfind("/*") > near.rfind("*/")


class Closer:
    """Finds where brackets of one *text* end. A text with many that do not end is no code: then it looks less far."""

    def __init__(self, text: str) -> None:
        self.text, self.patience = text, 40
        self.macros: dict[str, bool] = {}

    def __call__(self, position: int, pairs: re.Pattern[str] = BRACKET, reach: int = 1 << 16) -> int:
        """The end of the bracket that opens at *position*; -1: not within *reach* characters."""
        depth = 0
        for match in pairs.finditer(self.text, position, position + (reach if self.patience > 0 else 200)):
            if match[0] in "({":
                depth += 1
            elif match[0] in ")}":
                depth -= 1
                if not depth:
                    return match.end()
        self.patience -= 1
        return -1

    def defines(self, name: str, new: str) -> bool:
        """Whether the text has a macro *name* whose definition names *new*."""
        if name not in self.macros:
            self.macros[name] = self._defines(name, new)
        return self.macros[name]

    def _defines(self, name: str, new: str) -> bool:
        rule = rf"#\s*define\s+{name}\b(?:[^\n\\]|\\\r?\n|\\.)*\b{re.escape(new)}\b"
        return bool(re.search(rule, self.text))


def threshold(tables: Tables, operator: str, number: int) -> tuple[str, int] | str:
    """The MUSA form of ``__CUDA_ARCH__ operator number``; a text: why there is none."""
    if operator in ("==", "!="):
        return "no MUSA architecture equals an NVIDIA one"
    known = tables.contexts["arch_known"]
    if operator in (">", "<="):
        above = bisect_right(known, number)
        if above == len(known):
            return "no MUSA device has a counterpart yet"
        number = known[above]
    step = [row for row in tables.contexts["arch_steps"] if row[0] <= number][-1]
    if step[1] is None:
        return str(step[2])
    return (">=" if operator in (">", ">=") else "<"), step[1]


def architecture(tables: Tables, text: str, start: int, end: int) -> list[Edit] | str:
    """The edits at a ``__CUDA_ARCH__``: the number changes together with the name, or neither (a text: why)."""
    where = directive(text, start)
    after = COMPARED.match(text, end)
    left = previous(text, start)
    before = COMPARES.search(text, max(0, start - 120), start) if text[left : left + 1] in tuple("<>=/") else None
    arithmetic = left >= 0 and text[left] in "+-*%~" and text[left - 1 : left + 1] != "*/"
    if after and not arithmetic and after[4] not in tuple("+-*%/"):
        found = threshold(tables, after[1], int(after[2]))
        if isinstance(found, str):
            return found
        name = Edit(start, end, "__MUSA_ARCH__", "thresholds")
        operator = Edit(after.start(1), after.end(1), found[0], "thresholds")
        return [name, operator, Edit(after.start(2), after.end(2), str(found[1]), "thresholds")]
    follows = SPACE.match(text, end)
    right = follows.end() if follows else end
    if before and text[right : right + 1] not in tuple("+-*%/"):
        left = previous(text, before.start())
        if text[left : left + 1] in tuple("+-*%"):
            return "arithmetic with an architecture number"
        found = threshold(tables, FLIPPED.get(before[3], before[3]), int(before[1]))
        if isinstance(found, str):
            return found
        number = Edit(before.start(1), before.end(1), str(found[1]), "thresholds")
        operator = Edit(before.start(3), before.end(3), FLIPPED[found[0]], "thresholds")
        return [number, operator, Edit(start, end, "__MUSA_ARCH__", "thresholds")]
    head = text[max(0, start - 120) : start]
    if where in ("ifdef", "ifndef", "undef", "elifdef", "elifndef") or re.search(r"\bdefined\s*\(?\s*$", head):
        return [Edit(start, end, "__MUSA_ARCH__", "thresholds")]
    line_ends = "\n" in text[end:right] or right == len(text)
    truth = text[left] in "(!&|" or re.search(r"#\s*(?:el)?if\s*$", head)
    ends = line_ends or text[right : right + 2] in ("&&", "||") or text[right : right + 1] in (")", "?")
    if (
        where in ("if", "elif")
        and truth
        and ends
        and not (text[right : right + 1] == ")" and COMPARATOR.match(text, right + 1))
    ):
        return [Edit(start, end, "__MUSA_ARCH__", "thresholds")]
    return "a value on NVIDIA's scale that is compared with no plain number"


def assembly(closing: Closer, start: int, end: int, device: bool, mode: str) -> tuple[Edit | None, str]:
    """Inline PTX at *start*: the edit (None: keep it) and what to report (empty: this is not PTX)."""
    text = closing.text
    head = PTX_HEAD.match(text, end)
    stop = closing(head.end() - 1) if head else -1
    if not head or stop < 0:
        return None, ""
    body = text[head.end() : stop - 1]
    code = " ".join(re.findall(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.split(r":(?!:)", body, maxsplit=1)[0]))
    if '"' not in body.split(":")[0] and device:
        return None, "its template is no literal: if it is PTX, write this in C++"
    if LABEL.fullmatch(code) or AMD.match(code) or not (PTX.search(code) or (device and re.search(r"%\d|;", code))):
        return None, ""
    ends = "".join(re.findall(r"\\\r?\n|\r?\n", text[start:stop]))  # later lines keep their numbers
    if re.search(r"\n[ \t]*#", body):
        return None, "inline PTX with directives in it: write this in C++"
    if mode == "keep":
        return None, "inline PTX is kept: a MUSA compiler does not read it"
    if mode == "error":
        new = f'static_assert(false, "{PTX_ERROR}")'
        return Edit(start, stop, new + ends, "PTX"), "inline PTX became a compile-time error"
    zeros, inner = [], Closer(body)
    for operand in OPERAND.finditer(body):
        close = inner(operand.end() - 1)
        place = re.sub(r"\\?\s+", " ", body[operand.end() - 1 : close])
        zeros.append(f"{place} = {{}};")
    new = f"do {{ {' '.join(zeros)}{' ' if zeros else ''}}} while (0)"
    return Edit(start, stop, new + ends, "PTX"), "inline PTX became a stub that sets its outputs to zero"


def defines_itself(closing: Closer, start: int, end: int, new: str) -> bool:
    """Whether the name at *start* is being defined in terms of *new*, what it would be renamed to."""
    text, word = closing.text, re.compile(rf"\b{re.escape(new)}\b")
    follows = SPACE.match(text, end)
    right = follows.end() if follows else end
    if directive(text, start) == "define" and re.search(r"#\s*define\s+$", text[max(0, start - 120) : start]):
        line = re.compile(r"(?:[^\n\\]|\\\r?\n|\\.)*").match(text, end)
        return bool(line and word.search(line[0]))
    where = directive(text, start)
    guard = where in ("ifdef", "ifndef", "undef") or re.search(r"\bdefined\s*\(?\s*$", text[max(0, start - 40) : start])
    if guard:  # of such a definition
        return closing.defines(text[start:end], new)
    if (
        text[right : right + 1] == ":"
        and text[right + 1 : right + 2] != ":"
        and re.search(r"\b(?:struct|class)\b", _statement(text, start))
    ):
        return bool(word.search(text, right, max(right, text.find("{", right, right + REACH))))
    if text[right : right + 1] == "{":
        stop = closing(right, BRACE, REACH)
        return bool(";" not in text[right:stop] and word.search(text, right, stop)) if stop > 0 else False
    if text[right : right + 1] == "=" and text[right + 1 : right + 2] != "=":
        return bool(word.search(text, right, max(right, text.find(";", right, right + REACH))))
    if text[right : right + 1] == ";":
        head = _statement(text, start)
        return bool(re.search(r"\btypedef\b", head) and word.search(head))
    if text[right : right + 1] == "(":
        close = closing(right)
        brace = BODY.match(text, close) if close > 0 else None
        stop = closing(brace.end() - 1, BRACE) if brace else -1
        return bool(brace and stop > 0 and word.search(text, brace.end(), stop))
    return False


def _statement(text: str, position: int) -> str:
    """What stands before the place, from where its statement begins."""
    start = max(0, position - REACH, *(text.rfind(sign, max(0, position - REACH), position) + 1 for sign in ";{}"))
    return text[start:position]
