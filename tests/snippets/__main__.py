"""Run the snippets without pytest: ``python -m tests.snippets [area]``."""

import sys
import traceback
import warnings

import torch

from . import every


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = {name: snippet for name, snippet in every().items() if name.startswith(wanted)}
    failed = []
    for name, snippet in chosen.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                snippet()
        except Exception:
            failed.append(name)
            print(f"--- {name}\n{traceback.format_exc()}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} snippets pass on {torch.cuda.get_device_name()}")
    return int(bool(failed))


sys.exit(main())
