"""One broken rule breaks nothing else (design, invariant 8), and a broken torch_musa does not break torch."""

import pytest


def test_each_rule_made_to_fail(run_python):
    """In one process: for every row, an engine in which it raises (with two dozen others) arms, tells, and leaves the
    other rows working."""
    done = run_python(
        """
        import dataclasses, importlib, sys, warnings
        import torchada, torch
        from torchada.engine import Engine
        from torchada.rules import Detour, Install, Rule, Stub, Table, Wrap, load_table
        import torchada.shims.backend as area
        def explode(*args, **kwargs):
            raise RuntimeError("planted")
        area.explode = explode
        torchada.deactivate()
        table = load_table()
        def lazy(rule):
            return rule in table.lazy.get(rule.module, {}).get(rule.name, ())
        def broken(rule):
            do = Wrap("backend:explode") if lazy(rule) else Install("backend:explode")
            return dataclasses.replace(rule, do=do)
        checked = 0
        groups = len(table.rules) // 24
        for group in range(groups):
            victims = table.rules[group::groups]
            names = {victim.id for victim in victims}
            rules = [broken(r) if r.id in names else r for r in table.rules]
            engine = Engine(Table(table.mirrors.values(), rules))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                engine.engage()
            assert engine.state == "armed", names
            for victim in filter(lazy, victims):
                try:
                    getattr(importlib.import_module(victim.module), victim.name)
                except (AttributeError, ModuleNotFoundError) as error:  # an older torch has fewer modules
                    if engine.ledger.state(victim.id).outcome == "failed":
                        assert any(name in str(error) for name in names), (victim.id, error)
            states = engine.ledger.states()
            bad = {rule for rule, entry in states.items() if entry.outcome == "failed"}
            # torch's own code that is rehosted over a broken sibling fails too, and says whose fault it is
            blamed = {b for b in bad if b in names or any(name in states[b].detail for name in names)}
            assert bad == blamed, (bad - blamed, {b: states[b].detail for b in bad - blamed})
            told = [str(item.message) for item in caught if "rule(s) could not be applied" in str(item.message)]
            patches = {victim.id for victim in victims if not lazy(victim)} & bad
            assert len(told) == bool(patches), (told, patches)
            checked += len(bad & names)
            engine.deactivate()
        print(checked, "of", len(table.rules))
        assert checked > len(table.rules) // 2
        """
    )
    assert "of" in done.stdout


def test_strict_raises_the_original_error(run_python):
    code = """
        import torchada, torch
        from torchada.engine import Engine
        from torchada.rules import Mirror, Rule, Table, Wrap
        import torchada.shims.backend as area
        def explode(*args): raise ZeroDivisionError("planted")
        area.explode = explode
        torchada.deactivate()
        rule = Rule("torch.cuda:device_count", Wrap("backend:explode"), why="w", test="t")
        engine = Engine(Table([Mirror("torch.cuda", "torch_musa", "w")], [rule]))
        engine.engage()
        try:
            torch.cuda.device_count
        except AttributeError as error:
            print(type(error.__cause__).__name__, hasattr(torch.cuda, "device_count"))
        except ZeroDivisionError:
            print("original")
        """
    assert run_python(code).stdout.strip() == "ZeroDivisionError False"
    assert run_python(code, env={"TORCHADA_STRICT": "1"}).stdout.strip() == "original"


@pytest.mark.parametrize(
    "body", ["raise ImportError('no driver')", "import does_not_exist", "1/0", "raise OSError('libmusart.so')"]
)
def test_a_broken_torch_musa_leaves_torch_working(run_python, tmp_path, body):
    package = tmp_path / "broken" / "torch_musa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(body + "\n")
    done = run_python(
        f"""
        import sys
        sys.path.insert(0, {str(package.parent)!r})
        import torchada
        import torch
        print(torch.ones(2).sum().item(), torch.cuda.is_available(), torchada.is_active())
        print(type(torch.cuda).__name__, torch.device("cuda"))
        """,
        env={"TORCHADA_SIMULATE": None},
    )
    assert done.stdout.splitlines() == ["2.0 False False", "module cuda"]
    assert done.stderr.count("torch_musa could not be imported") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [("-W", "error"), ("-W", "error::UserWarning")])
def test_warnings_as_errors_do_not_break_the_import(run_python, tmp_path, options):
    package = tmp_path / "broken" / "torch_musa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no driver')\n")
    done = run_python(
        f"""
        import sys, warnings
        sys.path.insert(0, {str(package.parent)!r})
        import torchada
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="torch")
            warnings.filterwarnings("error", category=UserWarning, message=".*torch_musa.*")
            import torch
        print(torch.ones(2).sum().item())
        """,
        env={"TORCHADA_SIMULATE": None},
        options=options,
    )
    assert done.stdout.strip() == "2.0"
    assert "torch_musa could not be imported" in done.stderr


def test_a_missing_compiled_part_is_told_and_nothing_is_half_applied(run_python):
    done = run_python(
        """
        import sys
        sys.modules["torchada._detour"] = None
        import torchada, torch
        print(torchada.is_active(), torch.device("cuda"), type(torch.cuda).__name__)
        print([f for f in sys.meta_path if "torchada" in type(f).__module__])
        """,
    )
    assert done.stdout.splitlines() == ["False cuda module", "[]"] or "simulator" in done.stdout
    assert "torchada._detour is missing" in done.stderr


def test_an_exploding_lazy_module_does_not_matter(run_python):
    run_python(
        """
        import sys, types
        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                raise RuntimeError("touched " + name)
        import torchada.simulator
        torchada.simulator.install()
        import torch, os
        sys.modules["lazy_thing"] = Lazy("lazy_thing")
        sys.modules["torch_lazy"] = sys.modules["torch.lazy"] = Lazy("torch_lazy")
        sys.modules["none_thing"] = sys.modules["torch.none"] = None
        os.environ.pop("TORCHADA")
        assert torchada.activate()
        assert torch.device("cuda").type == "musa"
        torchada.deactivate()
        """,
        env={"TORCHADA": "0"},
    )
