"""deactivate() restores identities, keeps what others wrote, is idempotent (design, invariant 4)."""


def test_undo_restores_what_was_there(run_python):
    run_python(
        """
        import torchada.simulator
        torchada.simulator.install()
        import sys, os, torch, torch_musa, torch.utils.data, torch.distributed
        torch.zeros(1, device="musa")  # the backend's own lazy initialisation
        names = [n for n in sys.modules if n.partition(".")[0] in ("torch", "torch_musa")]
        kinds = (type(lambda: 0), type(len), type, type(sys), type(str.join), type(int.real))
        def picture():
            seen = {}
            for name in names:
                for key, value in vars(sys.modules[name]).items():
                    seen[name, key] = id(value)
            for holder in (torch.Tensor, torch._C.TensorBase, torch.device, torch.Generator, torch.UntypedStorage,
                           torch.nn.Module, torch.amp.autocast, torch.amp.GradScaler):
                for key, value in vars(holder).items():
                    seen[holder.__qualname__, key] = id(value)
            codes = {id(v): v.__code__ for n in names for v in vars(sys.modules[n]).values() if type(v) is kinds[0]}
            return seen, codes
        before, path, env = picture(), list(sys.meta_path), dict(os.environ)
        os.environ.pop("TORCHADA")
        for _ in range(2):
            assert torchada.activate() is True
            assert str(torch.zeros(1, device="cuda").device) == "musa:0"
            assert torch.cuda.device_count() == 2
            torch.cuda.Stream(); torch.cuda.memory_allocated(); torch.cuda.synchronize()
            torchada.deactivate()
            torchada.deactivate()
            assert torchada.is_active() is False
            after = picture()
            lost = {key for key in before[0].keys() | after[0].keys()
                    if before[0].get(key) != after[0].get(key)}
            # a torch module may import a child or fill a cache while it is used
            lost = {key for key in lost if not (key in after[0] and key not in before[0]
                    and isinstance(vars(sys.modules.get(key[0], sys)).get(key[1]), type(sys)))}
            assert not lost, sorted(lost)
            assert {k: v for k, v in after[1].items() if k in before[1]} == before[1]
            assert list(sys.meta_path) == path
        assert torch.device("cuda").type == "cuda"
        try:
            torch.zeros(1, device="cuda")
        except (AssertionError, RuntimeError, NotImplementedError):
            pass
        else:
            raise SystemExit("a CUDA tensor after deactivate()")
        assert str(torch.zeros(1, device="musa").device) == "musa:0"
        """,
        env={"TORCHADA": "0"},
    )


def test_what_users_and_cpp_wrote_is_kept(run_python):
    run_python(
        """
        import torchada, torch
        torch.cuda.mine = 42
        torch.cuda.FloatTensor
        types_before = {name: vars(torch.cuda)[name] for name in vars(torch.cuda) if name.endswith("Tensor")}
        original = torch.cuda.device_count
        torch.cuda.device_count = lambda: 7
        assert torch.cuda.device_count() == 7
        del torch.cuda.device_count
        assert torch.cuda.device_count is original
        torchada.deactivate()
        assert torch.cuda.mine == 42
        for name, value in types_before.items():
            assert getattr(torch.cuda, name) is value
        assert not hasattr(torch.cuda, "__getattr__")
        assert torch.cuda.device_count is not original
        """
    )


def test_mock_patch_round_trips(run_python):
    run_python(
        """
        import torchada, torch
        from unittest import mock
        for name in ("is_available", "device_count", "current_device", "memory_allocated"):
            for warm in (False, True):
                if warm:
                    getattr(torch.cuda, name)
                with mock.patch(f"torch.cuda.{name}", return_value=9):
                    assert getattr(torch.cuda, name)() == 9
                assert getattr(torch.cuda, name)() != 9
        """
    )


def test_disabled_is_a_block(run_python):
    run_python(
        """
        import torchada, torch
        via = torchada.status()["via"]
        with torchada.disabled():
            assert torch.device("cuda").type == "cuda" and not torchada.is_active()
        assert torch.device("cuda").type == "musa" and torchada.is_active()
        assert torchada.status()["via"] == via
        try:
            with torchada.disabled():
                raise KeyError
        except KeyError:
            pass
        assert torchada.is_active()
        torchada.deactivate()
        with torchada.disabled():
            pass
        assert not torchada.is_active()
        """
    )


def test_deactivate_before_torch_is_imported(run_python):
    run_python(
        """
        import sys, torchada
        torchada.deactivate()
        import torch
        assert "torch_musa" not in sys.modules
        assert torch.device("cuda").type == "cuda"
        assert torchada.activate()
        assert torch.device("cuda").type == "musa"
        """
    )


def test_visible_devices_are_restored(run_python):
    run_python(
        """
        import os, torchada
        assert torchada.activate()
        assert os.environ["MUSA_VISIBLE_DEVICES"] == os.environ["CUDA_VISIBLE_DEVICES"] == "1"
        import torch
        torchada.deactivate()
        assert "MUSA_VISIBLE_DEVICES" not in os.environ and os.environ["CUDA_VISIBLE_DEVICES"] == "1"
        """,
        env={"CUDA_VISIBLE_DEVICES": "1", "MUSA_VISIBLE_DEVICES": None},
    )


def test_musas_visible_devices_win(run_python):
    run_python(
        """
        import os, torchada
        assert torchada.activate()
        assert os.environ["MUSA_VISIBLE_DEVICES"] == os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        os.environ["CUDA_VISIBLE_DEVICES"] = "3"   # the program's own choice, later
        torchada.deactivate()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3" and os.environ["MUSA_VISIBLE_DEVICES"] == "0"
        """,
        env={"CUDA_VISIBLE_DEVICES": "1", "MUSA_VISIBLE_DEVICES": "0"},
    )


def test_the_devices_chosen_last_are_seen(run_python):
    """By the program after the import, and by whoever starts a child: what torchada wrote itself is no choice."""
    run_python(
        """
        import os, torchada
        from torchada.visible import follow_visible_devices
        def now():
            return os.environ.get("MUSA_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES")
        def after(**changes):
            for name, value in changes.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            follow_visible_devices()
            return now()
        assert torchada.activate()
        assert now() == ("0,1", "0,1")  # the parent's CUDA choice after both were made "1"
        assert after(CUDA_VISIBLE_DEVICES="1") == ("1", "1")
        assert after(MUSA_VISIBLE_DEVICES="0") == ("0", "0")
        assert after(MUSA_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="0") == ("1", "1")
        assert after(CUDA_VISIBLE_DEVICES=None) == (None, None)
        assert after(CUDA_VISIBLE_DEVICES="") == ("", "")
        torchada.deactivate()
        assert now() == ("1", "") and os.environ["TORCHADA_VISIBLE"] == "1"  # as the program and its parent wrote
        """,
        env={"CUDA_VISIBLE_DEVICES": "0,1", "MUSA_VISIBLE_DEVICES": "1", "TORCHADA_VISIBLE": "1"},
    )


def test_a_module_put_back_is_not_half_imported(run_python):
    run_python(
        """
        import sys, torchada, torch
        torchada.deactivate()
        for name in [name for name in sys.modules if name.startswith("torch.cuda")]:
            try:
                sys.modules[name].no_such_name
            except AttributeError as error:
                assert "partially" not in str(error), error
            assert not getattr(sys.modules[name].__spec__, "_initializing", False), name
        """
    )
