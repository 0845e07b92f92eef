"""The lexer gives every text back, and cuts it where C++ does."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchada.porting.lexer import scanner, stops, tokens, trie, whole
from torchada.porting.tree import decode, encode

PIECES = st.sampled_from(
    [
        '"',
        "'",
        "/*",
        "*/",
        "//",
        "\\\n",
        "\\\r\n",
        "\n",
        "\r\n",
        "#include <a.h>",
        "#",
        'R"x(',
        ')x"',
        "cudaMalloc",
        "1'000",
        "u8",
        "L",
        " ",
        "::",
        "\\",
        "#error don't",
        "0x1p-3",
        "�",
        "é",
        "\ufeff",
        "=",
        "#if",
        "<",
        ">",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=20).map("".join)))
def test_joined_tokens_are_the_text(text):
    found = list(tokens(text))
    assert "".join(token.text for token in found) == text
    assert all(text.startswith(token.text, token.start) for token in found)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80).filter(lambda data: b"\0" not in data))
def test_bytes_survive(data):
    text = decode(data)
    assert encode("".join(token.text for token in tokens(text))) == data


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('f("a\\"b", \'"\', 1\'000)', "word sign string sign space char sign space number sign"),
        ('R"x(a)" //)x" b', "raw space word"),
        ('u8R"(\n)" L"a"', "raw space string"),
        ("a // b \\\n c\nd", "word space comment newline word"),
        ("/* a\n*/ #include <x.h>", "comment space include"),
        ("a #include <x.h>", "word space sign word space sign word sign word sign"),
        ("#  error don't\nx", "message newline word"),
        ("#if A \\\r\n B\r\n", "directive space word space continuation space word newline"),
        ("/* open", "comment"),
        ('"open\nx', "sign word newline word"),
        ("a->b ... c::d", "word sign word space sign space word sign word"),
    ],
)
def test_kinds(text, kinds):
    assert [token.kind for token in tokens(text)] == kinds.split()


def test_raw_literals_that_nothing_closes_are_read_once():
    """Each would be searched to the end of the text: minutes."""
    text = "int a\\\nb;\n" + 'R"x(a ' * 20_000 + "".join(f'R"x{i}(a ' for i in range(20_000))
    assert "".join(token.text for token in tokens(text)) == text
    assert whole(text) == text.replace("a\\\nb;", "ab\\\n;")
    assert all(text[start] == '"' for start, _ in stops(scanner(), text))
    assert [token.text for token in tokens('R"x(a)y" R"y(b)y" R"y(c')][:3] == ["R", '"x(a)y"', " "]


def test_a_trie_matches_its_words_only():
    words = ["a", "ab", "abc", "b", "xyz"]
    assert [w for w in ("a", "ab", "abc", "abcd", "b", "x", "xyz", "") if re.fullmatch(trie(words), w)] == words
