"""Threads, fork and spawn (design, invariants 10 and 12)."""


def test_threads_import_and_ask_at_once(run_python):
    run_python(
        """
        import threading, torchada
        errors, answers = [], []
        barrier = threading.Barrier(8)
        def work():
            try:
                barrier.wait()
                import torch
                from torch.cuda import Stream, memory_allocated
                answers.append((str(torch.zeros(1, device="cuda:1").device), Stream, memory_allocated() >= 0))
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not errors, errors
        assert len(set(answers)) == 1 and answers[0][0] == "musa:1", answers
        """
    )


def test_activate_and_deactivate_while_others_work(run_python):
    """Other threads always see a whole state: a MUSA tensor, or torch's own error."""
    run_python(
        """
        import threading, torchada, torch
        torch.zeros(1, device="cuda")
        stop, wrong = threading.Event(), []
        def work():
            while not stop.is_set():
                try:
                    kind = torch.zeros(1, device="cuda").device.type
                    if kind != "musa":
                        wrong.append(kind)
                except (AssertionError, RuntimeError, AttributeError):
                    pass
                except BaseException as error:
                    wrong.append(repr(error))
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(10):
            torchada.deactivate()
            torchada.activate()
        stop.set()
        for thread in threads: thread.join()
        assert not wrong, wrong[:3]
        assert str(torch.zeros(1, device="cuda").device) == "musa:0"
        """
    )


def test_threads_that_activate_and_deactivate_at_once(run_python):
    """One change of state at a time, whoever asks for it: no rule is lost and none stays after deactivate()."""
    done = run_python(
        """
        import sys, threading, torchada, torch
        torch.zeros(1, device="cuda")
        whole = torchada.status()["rules"].keys()
        sys.setswitchinterval(1e-5)
        stop, errors = threading.Event(), []
        def ask():
            while not stop.is_set():
                try:
                    torch.cuda.memory_allocated, torch.cuda.Stream, dir(torch.cuda), dir(torch.cuda.memory)
                except BaseException as error:
                    errors.append(error)
        def toggle(change):
            for _ in range(6):
                change()
        def block():
            with torchada.disabled():
                pass
        asking = [threading.Thread(target=ask) for _ in range(3)]
        changes = (torchada.activate, torchada.deactivate, torchada.activate, block)
        toggling = [threading.Thread(target=toggle, args=(change,)) for change in changes]
        for thread in asking + toggling: thread.start()
        for thread in toggling: thread.join()
        stop.set()
        for thread in asking: thread.join()
        assert not errors, errors[:3]
        torchada.deactivate()
        torchada.activate()
        assert torchada.status()["rules"].keys() <= {"active", "pending", "gated", "absent"}, torchada.status()
        assert str(torch.zeros(1, device="cuda").device) == "musa:0"
        torchada.deactivate()
        try:
            torch.zeros(1, device="cuda")
        except (AssertionError, RuntimeError, NotImplementedError):
            pass
        else:
            raise SystemExit("a redirection outlived deactivate()")
        """
    )
    assert "could not" not in done.stderr, done.stderr


def test_overlapping_blocks_of_disabled(run_python):
    run_python(
        """
        import threading, torchada
        inside, leave = threading.Event(), threading.Event()
        def block():
            with torchada.disabled():
                inside.set()
                leave.wait(20)
                seen.append(torchada.is_active())
        seen = []
        other = threading.Thread(target=block)
        with torchada.disabled():
            other.start()
            inside.wait(20)
            with torchada.disabled():
                assert not torchada.is_active()
        assert not torchada.is_active(), "the other thread's block is still open"
        leave.set()
        other.join()
        assert seen == [False] and torchada.is_active()
        assert torchada.status()["via"] == "import"
        """
    )


def test_no_lock_is_held_while_calling_out(run_python):
    """A module imported by another thread while torch is being imported must not dead-lock."""
    run_python(
        """
        import sys, threading, torchada, wrapt
        joined = []
        def hook(module):
            def work():
                __import__("decimal")
                sys.modules["torch.cuda"].Stream
            other = threading.Thread(target=work)
            other.start()
            other.join(20)
            joined.append(not other.is_alive())
        wrapt.register_post_import_hook(hook, "torch.cuda.memory")
        import torch
        assert joined == [True], "dead-lock"
        assert str(torch.zeros(1, device="cuda").device) == "musa:0"
        """
    )


def test_fork_keeps_the_translation_before_initialisation(run_python):
    run_python(
        """
        import os, torchada, torch
        pid = os.fork()
        if pid == 0:
            ok = str(torch.zeros(1, device="cuda:1").device) == "musa:1"
            os._exit(0 if ok else 7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )


def test_fork_after_initialisation_gives_torchs_error(run_python):
    run_python(
        """
        import os, torchada, torch
        torch.zeros(1, device="cuda")
        pid = os.fork()
        if pid == 0:
            try:
                torch.zeros(1, device="cuda")
            except RuntimeError as error:
                os._exit(0 if "Cannot re-initialize" in str(error) and "spawn" in str(error) else 8)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )


def test_spawned_and_forked_children_inherit(run_python, tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import multiprocessing as mp\n"
        "def work(queue):\n"
        "    import torch\n"
        "    queue.put(str(torch.zeros(1, device='cuda:1').device))\n"
        "if __name__ == '__main__':\n"
        "    import torchada\n"
        "    for method in ('spawn', 'fork', 'forkserver'):\n"
        "        context = mp.get_context(method)\n"
        "        queue = context.Queue()\n"
        "        process = context.Process(target=work, args=(queue,))\n"
        "        process.start()\n"
        "        print(method, queue.get(timeout=120))\n"
        "        process.join()\n"
    )
    done = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert done.stdout.split() == ["spawn", "musa:1", "fork", "musa:1", "forkserver", "musa:1"]
