"""Porting a directory of CUDA sources word by word; not simulated."""

import os

from .._not_simulated import stand_ins
from .logger_util import LOGGER  # noqa: F401
from .musify_text import init_ac_automaton, transform_file  # type: ignore[attr-defined]  # noqa: F401
from .simple_porting import EXT_REPLACED_MAPPING, read_json  # noqa: F401

SEFL_PATH = os.path.dirname(os.path.abspath(__file__))

globals().update(
    stand_ins(
        __name__,
        "vendor porting tools",
        {
            "SimplePortingViaMusify": {
                "__init__": "(self, cuda_dir_path, ignore_patterns, extra_mapping=None, drop_default_mapping=False, "
                "mapping=None, output_method='inplace', direction='c2m', log_level='INFO')",
                "_change_file_ext": "(self, name)",
                "_collect_srcs": "(self)",
                "_copy_srcs": "(self)",
                "_delete_srcs": "(self)",
                "_rename_ext": "(self)",
                "run": "(self)",
            }
        },
    )
)
