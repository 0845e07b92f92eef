"""Quantization modules."""
