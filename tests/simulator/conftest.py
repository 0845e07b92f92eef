"""What several tests of the simulated device use."""

import subprocess

import pytest

SOURCE = r"""
#include <stdlib.h>
#include <stddef.h>
long live, total, inits, resets;
double fraction;
void *take(size_t n, int device, void *stream) { live++; total += n; return malloc(n); }
void give(void *p, size_t n, int device, void *stream) { live--; free(p); }
void init(int devices) { inits += devices; }
void reset(void) { resets++; }
void limit(double f, int device) { fraction = f; }
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A shared library with an allocator, compiled here."""
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "a.c").write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "a.so", folder / "a.c"], check=True, timeout=60)
    return folder / "a.so"
