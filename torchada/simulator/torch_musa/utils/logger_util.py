"""The logger of the porting tools: to standard output, with time, level and place."""

import logging
import sys
from logging import Formatter, StreamHandler

__all__ = ["LOGGER", "create_logger"]


def create_logger():
    """The logger "torch_musa", at level INFO; a second call makes no second handler."""
    logger = logging.getLogger("torch_musa")
    if not logger.handlers:
        handler = StreamHandler(sys.stdout)
        handler.setFormatter(Formatter("[%(asctime)s][%(levelname)s][%(filename)s:%(lineno)d] %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
    logger.setLevel(logging.INFO)
    return logger


LOGGER = create_logger()
