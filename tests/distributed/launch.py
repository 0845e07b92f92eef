"""Starts real processes that make up a distributed job, and collects what they report."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT)]
if torch.version.cuda is not None:
    PATHS.append(str(Path(__file__).with_name("without_nccl")))


def environment(devices: int) -> dict[str, str]:
    """This process's variables without torchada's, for processes that meet on this machine."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TORCHADA")}
    if "TORCHADA_SIM_CACHE" in os.environ:
        environ["TORCHADA_SIM_CACHE"] = os.environ["TORCHADA_SIM_CACHE"]
    environ.update(PYTHONPATH=os.pathsep.join(PATHS), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    return environ | {"TORCHADA_SIM_DEVICES": str(devices)}


class Job:
    """What the processes of a job did: exit codes, output texts, and the reports they wrote, by rank."""

    def __init__(self, codes: list[int], outputs: list[str], reports: list[dict[str, str]]):
        self.codes, self.outputs, self.reports = codes, outputs, reports

    def text(self) -> str:
        return "\n".join(
            f"---- rank {rank}: exit code {self.codes[rank]}\n{text}" for rank, text in enumerate(self.outputs)
        )


def run_job(
    script: Path, ranks: int, folder: Path, *arguments: str, env: dict[str, str] | None = None, timeout: float = 240
) -> Job:
    """Run `script` in `ranks` processes with torch's usual variables (RANK ...), meeting in a file of `folder`.

    A script writes its report, a JSON object, to the file named by REPORT. A process that is not done after
    `timeout` seconds is killed and has exit code -9.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environ = environment(max(2, ranks)) | {"WORLD_SIZE": str(ranks), "STORE": str(folder / "store")} | (env or {})
    processes, files = [], []
    for rank in range(ranks):
        environ.update(RANK=str(rank), LOCAL_RANK=str(rank), REPORT=str(folder / f"report{rank}"))
        files.append(open(folder / f"output{rank}", "w+"))  # noqa: SIM115  (closed below)
        processes.append(
            subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=environ,
                cwd=folder,
                stdout=files[-1],
                stderr=subprocess.STDOUT,
            )
        )
    end = time.monotonic() + timeout
    codes, outputs, reports = [], [], []
    for process in processes:
        try:
            codes.append(process.wait(max(0.1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(process.wait())
    for rank, file in enumerate(files):
        file.seek(0)
        outputs.append(file.read())
        file.close()
        report = folder / f"report{rank}"
        reports.append(json.loads(report.read_text()) if report.exists() else {})
    return Job(codes, outputs, reports)
