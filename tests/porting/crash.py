"""Kill in-place porting at random moments: ``python -m tests.porting.crash [ROUNDS]`` (200 by default).

After each kill every file is either old or new, and undoing gives all of them back.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PORT = """
import sys
from torchada.porting.command import main
print("go", flush=True)
sys.exit(main("port", sys.argv[1:]))
"""


def crashes(folder: Path, rounds: int, files: int, seed: int) -> int:
    """Run *rounds* ports of *files* files in *folder*, each killed; how many were hit while files were being written.

    AssertionError: a file was torn, or undoing did not restore one.
    """
    chance = random.Random(seed)
    old = {f"d{i % 7}/k{i}.cu": f"// {i}\ncudaMalloc(&p, {i});\n".encode() * (1 + i % 50) for i in range(files)}
    new = {path: data.replace(b"cudaMalloc", b"musaMalloc") for path, data in old.items()}
    for path, data in old.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    begin, whole, hit = 0.0, 0.3, 0
    for number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", PORT, str(folder), "--in-place"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process, process.stdout:
            assert process.stdout.readline() == "go\n"
            begin = time.monotonic()
            if number:
                time.sleep(chance.uniform(0, whole))
                process.kill()
            process.wait(300)
            if not number:
                whole = time.monotonic() - begin  # how long the whole work takes here
        now = {path: (folder / path).read_bytes() for path in old}
        torn = [path for path in old if now[path] not in (old[path], new[path])]
        assert not torn, f"seed {seed}, round {number}: torn {torn}"
        hit += 0 < sum(now[path] == new[path] for path in old) < files
        if now != old or (folder / ".torchada-port" / "journal").exists():
            undone = subprocess.run(
                [sys.executable, "-c", PORT, str(folder), "--undo"], capture_output=True, text=True, timeout=300
            )
            assert undone.returncode == 0, f"seed {seed}, round {number}: {undone.stdout}{undone.stderr}"
        back = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.cu")}
        assert back == old, f"seed {seed}, round {number}: not restored"
    return hit


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = random.randrange(1 << 30)
    with tempfile.TemporaryDirectory() as folder:
        hit = crashes(Path(folder), rounds, 100, seed)
    print(f"{rounds} rounds, {hit} killed between the first and the last file: nothing torn, all undone (seed {seed})")


if __name__ == "__main__":
    main()
