"""Counterparts of ``torch.utils`` modules, for programs that name torchada."""
