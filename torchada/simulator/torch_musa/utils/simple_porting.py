"""Porting a directory of CUDA sources; not simulated."""

import json

from .._not_simulated import stand_ins
from .logger_util import LOGGER  # noqa: F401

EXT_REPLACED_MAPPING = {"cu": "mu", "cuh": "muh"}


def read_json(json_file_path):
    """What a JSON file holds."""
    with open(json_file_path, encoding="utf-8") as file:
        return json.load(file)


globals().update(
    stand_ins(
        __name__,
        "vendor porting tools",
        {
            "SimplePorting": {
                "__init__": "(self, cuda_dir_path=None, ignore_dir_paths=None, mapping_rule=None, "
                "drop_default_mapping=False, mapping_dir_path=None)",
                "change_filename": "(self, name)",
                "load_replaced_mapping": "(self)",
                "modify_file": "(self, cuda_filepath, musa_filepath)",
                "process_ignore_dir_paths": "(self)",
                "run": "(self)",
            }
        },
    )
)
