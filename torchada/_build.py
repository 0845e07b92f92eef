"""Build hook of the wheel: compiles the extension modules and adds the files that switch torchada on.

Run by the build backend by path (see pyproject.toml); it is not part of an installed torchada.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# torch_musa is for Linux alone; elsewhere torchada is inert, and nothing asks for _rotation, which reads ELF tables.
MODULES = ("_detour", "_asker", *(("_rotation",) if sys.platform == "linux" else ()))
NEEDED = (
    "torchada needs a C compiler and the Python headers to build torchada._detour, and {missing}: "
    "install gcc and python3-dev (Debian/Ubuntu), gcc and python3-devel (Fedora/RHEL), or a Python that "
    "brings its headers, then try again"
)


def missing() -> str | None:
    """What this machine lacks for a C extension, in words; None where it has everything."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no compiler {compiler!r}"
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        return f"there is no {header}"
    return None


def compile_extensions(root: str, into: str) -> list[str]:
    """Compile the extension modules below *into*; the paths of the results."""
    from setuptools import Distribution, Extension

    extensions = [Extension(f"torchada.{name}", [os.path.join("torchada", f"{name}.c")]) for name in MODULES]
    command = Distribution({"name": "torchada", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = into
    command.build_temp = os.path.join(into, "temp")
    command.ensure_finalized()
    before = os.getcwd()
    os.chdir(root)
    try:
        command.run()
    finally:
        os.chdir(before)
    return [str(command.get_ext_fullpath(extension.name)) for extension in extensions]


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """What hatchling calls around a wheel build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build in place for an editable install, into a temporary folder for a wheel."""
        lacking = missing()
        if lacking:
            raise SystemExit(NEEDED.format(missing=lacking))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        self.scratch = tempfile.TemporaryDirectory(prefix="torchada-build-")
        libraries = compile_extensions(self.root, self.scratch.name)
        if version == "editable":
            # Renamed into place: a running process may have the old file mapped into its memory.
            for library in libraries:
                target = os.path.join(self.root, "torchada", os.path.basename(library))
                os.replace(shutil.copy(library, target + ".new"), target)
            return
        for library in libraries:
            build_data["force_include"][library] = f"torchada/{os.path.basename(library)}"
        # At the root of site-packages, where the site module looks, as well as in the package (copied: the
        # backend places each file once). An editable install leaves them out, so that a developer decides:
        # python -m torchada enable.
        for name in ("torchada.pth", "torchada.start"):
            copy = shutil.copy(os.path.join(self.root, "torchada", "_site", name), self.scratch.name)
            build_data["force_include"][copy] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the build left."""
        self.scratch.cleanup()
