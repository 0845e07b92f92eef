"""torch.compile, torch.export and the caches, through CUDA names."""
