"""Replacing words in text by a table; the small functions work, the replacement itself is not simulated."""

from .._not_simulated import stand_ins

EXCL_FLAG = False
automaton = None
excl_pattern = None


def is_word_char(char_str):
    """True for a letter, a digit or an underscore."""
    return char_str == "_" or char_str.isalnum()


def is_word_boundary(code, begin_idx, end_idx):
    """True when `code[begin_idx:end_idx]` is not part of a longer word."""
    before = begin_idx > 0 and is_word_char(code[begin_idx - 1])
    after = end_idx < len(code) and is_word_char(code[end_idx])
    return not before and not after


globals().update(
    stand_ins(
        __name__,
        "vendor porting tools",
        {
            "KeywordMap": {
                "__init__": "(self, case_insensitive=False)",
                "_KeywordMap__transform_result": "(self, result)",
                "add": "(self, key, value)",
                "finalize": "(self)",
                "search": "(self, text)",
                "search_all": "(self, text)",
                "search_longest": "(self, text)",
                "search_one": "(self, text)",
            },
            "exclusion_line": "(line_no)",
            "exclusion_start": "(line_no)",
            "exclusion_stop": "(line_no)",
            "init_ac_automaton": "(args)",
            "is_overlap": "(x, y)",
            "should_replace": "(old, new)",
            "transform_file": "(path, args)",
            "transform_line": "(line, line_no)",
            "writer": "(file_name=None)",
        },
    )
)
