"""``PYTHONPATH=<checkout>/sitecustomize`` switches torchada on where nothing can be installed.

It only hands over to the file that ships inside the package.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[sys.path.index(_here)] = os.path.join(os.path.dirname(_here), "torchada", "_site")
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
