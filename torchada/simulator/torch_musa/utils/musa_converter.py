"""Rewriting Python sources from CUDA to MUSA names; not simulated."""

from .._not_simulated import stand_ins

LOG_FORMAT = "%(asctime)s - %(levelname)s - %(message)s"
MAPPING_RULES: dict[str, str] = {}

_LEAVE = "(self, original_node, updated_node)"

globals().update(
    stand_ins(
        __name__,
        "vendor porting tools",
        {
            "AdvancedMUSAConverter": {
                "__init__": "(self, args)",
                "add_torch_musa_into_launch_script": "(self, file)",
                "collect_unsupported_torch_ops": "(self)",
                "convert_file": "(self, file)",
                "run": "(self)",
            },
            "BaseMUSAConverter": {
                "__init__": "(self, args)",
                "is_legal_file": "(self, path)",
                "run": "(self)",
                "setup_files": "(self)",
            },
            "MUSAReplacementTransformer": {
                "__init__": "(self)",
                "leave_Attribute": _LEAVE,
                "leave_Comment": _LEAVE,
                "leave_FormattedStringText": _LEAVE,
                "leave_Import": _LEAVE,
                "leave_ImportFrom": _LEAVE,
                "leave_Name": _LEAVE,
                "leave_NameOrCommentOrSimpleString": _LEAVE,
                "leave_SimpleString": _LEAVE,
                "visit_Import": "(self, node)",
                "visit_ImportFrom": "(self, node)",
            },
            "main": "()",
            "parse_args": "()",
            "string2cst_attribute": "(attr)",
            "string2cst_name": "(name)",
        },
    )
)
