"""Rows are honest, gates mean what they print."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchada.errors import TableError
from torchada.gates import Facts, Gate
from torchada.rules import (
    Compute,
    Detour,
    Forward,
    Install,
    Mirror,
    Native,
    Refuse,
    Rule,
    Stub,
    Table,
    Wrap,
    each,
    load_table,
)
from torchada.version import compare, public

ROOT = Path(__file__).resolve().parents[2]
TABLE = load_table()
VERSIONS = st.builds(
    lambda a, b, c, post, local: f"{a}.{b}.{c}" + (f".post{post}" if post else "") + (f"+{local}" if local else ""),
    st.integers(0, 4),
    st.integers(0, 20),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["", "cpu", "musa5.2.0"]),
)


def row(**changes):
    return Rule(**({"at": "torch:zeros", "do": Detour(keywords=("device",)), "why": "w", "test": "t"} | changes))


def test_the_product_table_is_valid():
    TABLE.validate()
    assert TABLE.mirrors and TABLE.rules


@pytest.mark.parametrize("rule", TABLE.rules, ids=lambda rule: rule.id)
def test_shims_named_by_rows_exist(rule):
    for path in (getattr(rule.do, "shim", ""), getattr(rule.do, "cache", "")):
        if path:
            module, _, name = path.partition(":")
            assert hasattr(importlib.import_module(f"torchada.shims.{module}"), name), path


@pytest.mark.parametrize("rule", TABLE.rules, ids=lambda rule: rule.id)
def test_the_test_a_row_names_exists(rule):
    file, _, function = rule.test.partition("::")
    path = ROOT / file
    assert path.is_file(), file
    if function:
        names = {
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        assert function.partition("[")[0] in names, rule.test


def test_tables_hold_no_logic():
    for file in (ROOT / "torchada" / "tables").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            forbidden = (
                ast.FunctionDef,
                ast.If,
                ast.For,
                ast.While,
                ast.Lambda,
                ast.ListComp,
                ast.GeneratorExp,
                ast.Try,
            )
            assert not isinstance(node, forbidden), f"{file.name}:{node.lineno}"
            if isinstance(node, ast.Import):
                assert all(alias.name.partition(".")[0] != "torch" for alias in node.names), file.name


def test_the_engine_names_no_attribute_of_torch():
    for name in ("engine", "finder", "virtual", "rehost", "redirect", "adopt", "ledger", "rules"):
        tree = ast.parse((ROOT / "torchada" / f"{name}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "torch", f"{name}.py:{node.lineno}"


def test_shims_check_no_versions():
    for file in (ROOT / "torchada" / "shims").glob("*.py"):
        assert not re.search(
            r"\bcompare\(|\bVersion\(|__version__ *[<>=!]|detect_platform|is_musa_platform", file.read_text()
        ), file.name


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([row(), row()], "stands twice"),
        ([row(why=" ")], "needs"),
        ([row(test="")], "needs"),
        ([row(at="torch")], "needs"),
        ([row(when="torch ~ 2")], "not understood"),
        ([row(when="env:A and env:B")], "not understood"),
        ([row(do=Native())], "does not fit a patch"),
        ([row(at="torch.cuda:x.y", do=Native())], "not of a class"),
    ],
)
def test_a_bad_table_is_refused(rules, text):
    with pytest.raises(TableError, match=text):
        Table([Mirror("torch.cuda", "torch_musa", "w")], rules).validate()


def test_actions_are_values():
    pairs = [Native(), Forward("a"), Wrap("a:b"), Stub("a:b"), Compute("a:b"), Refuse("r"), Detour(), Install("a:b")]
    assert len(set(pairs)) == len(pairs)
    assert each("torch", "a b", Native(), why="w", test="t")[1] == Rule("torch:b", Native(), why="w", test="t")


@given(VERSIONS, VERSIONS)
def test_comparisons_are_a_total_order_on_public_versions(left, right):
    facts = Facts("musa", {"torch_musa": left})
    outcomes = {
        sign: Gate(f"torch_musa {sign} {right.partition('+')[0]}").failing(facts) is None
        for sign in ("<", "<=", "==", "!=", ">=", ">")
    }
    assert outcomes["<"] is not outcomes[">="]
    assert outcomes[">"] is not outcomes["<="]
    assert outcomes["=="] is not outcomes["!="]
    assert sum(outcomes[sign] for sign in ("<", "==", ">")) == 1


@given(VERSIONS)
def test_the_local_part_never_counts(text):
    bare = text.partition("+")[0]
    assert public(f"{bare}+musa5.2.0") == public(bare)
    assert compare(f"{bare}+x", "==", bare)


@pytest.mark.parametrize("unknown", [None, "", "git-abc", "unknown"])
def test_an_unknown_version_ranks_lowest(unknown):
    assert compare(unknown, "<", "0.0.1")
    assert not compare(unknown, ">=", "0.0.1")


@given(st.lists(st.sampled_from(["late", "env:A", "not env:B", "has:x.y", "torch >= 2.9"]), max_size=5))
def test_all_clauses_have_to_hold(clauses):
    everything = Facts("musa", {"torch": "2.13.0"}, {"A": "yes"}, {"x.y": True}, late=True)
    assert Gate("; ".join(clauses)).failing(everything) is None
    nothing = Facts("musa", {"torch": "2.7.1"}, {"B": "1"}, {})
    assert Gate("; ".join(clauses)).failing(nothing) == (clauses[0] if clauses else None)


@pytest.mark.parametrize(
    ("word", "holds"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("", False), ("2", False)]
)
def test_env_clauses_read_true_words_only(word, holds):
    assert (Gate("env:A").failing(Facts("musa", env={"A": word})) is None) is holds


@pytest.mark.parametrize(("answer", "holds"), [(True, True), (False, False), (None, True)])
def test_a_probe_that_cannot_tell_keeps_the_workaround(answer, holds):
    assert (Gate("probe ops:x").failing(Facts("musa"), lambda path: answer) is None) is holds


@given(VERSIONS, VERSIONS, st.booleans(), st.booleans())
def test_at_most_one_rule_is_open_per_place(torch_version, musa_version, late, forced):
    env = {"TORCHADA_FORCE_CUDA_AVAILABLE": "1"} if forced else {}
    facts = Facts("musa", {"torch": torch_version, "torch_musa": musa_version}, env, {}, late)
    open_at = [rule.at for rule in TABLE.rules if rule.when and rule.gate.failing(facts) is None]
    always = {rule.at for rule in TABLE.rules if not rule.when}
    assert len(open_at) == len(set(open_at))
    assert not always & set(open_at)
