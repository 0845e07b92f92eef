"""docs/troubleshooting.md quotes messages that the code really has."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = re.compile(  # what differs each time, and what stands in front of a message
    r"\.\.\.|'\w*'|\b[XxN3]\b|\w+Error: |\bnvidia-ml-py\b|(?:MUSA|CUDA) out|invalid device|\bcu\w+|\d+|musa\b"
    r"|__main__\S*"
)
OTHERS = (
    "can't open file",
    "should be GPU",
    "Invalid device string",
    "unsupported device type",
    "Cannot initialize CUDA",
)  # Python's, Lightning's, torch's in C++


def _source() -> str:
    files = [*ROOT.glob("torchada/**/*.py"), *ROOT.glob("torchada/simulator/csrc/*.cpp")]
    files.append(Path(torch.__file__).parent / "cuda" / "__init__.py")
    text = "\n".join(file.read_text() for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)  # texts that go over lines


def _messages() -> list[str]:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return [match for row in rows for match in re.findall(r"`([^`]+)`", row)[:1]]


def test_every_message_is_in_the_code():
    source = _source()
    messages = _messages()
    assert len(messages) > 15
    missing = []
    for message in messages:
        longest = max(VARIABLE.split(message), key=len).strip(" :(=")
        if longest not in source and not any(own in message for own in OTHERS):
            missing.append((message, longest))
    assert missing == []
