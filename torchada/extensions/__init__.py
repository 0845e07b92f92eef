"""Building C++ and CUDA extensions for MUSA with torch's own ``torch.utils.cpp_extension``."""
