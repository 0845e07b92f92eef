"""Bodies named by rows as ``"area:function"``. Loaded only when torchada is armed.

A shim holds no version check, no platform check and no "already patched" check: its row's gate does.
"""
