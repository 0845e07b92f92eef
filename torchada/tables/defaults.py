"""Modules whose names need no row, because torch's own code serves every device, and why."""

GENERIC = {
    "torch.accelerator": "asks the backend of the current accelerator, which is MUSA",
    "torch.accelerator.graphs": "asks the backend of the current accelerator, which is MUSA",
    "torch.accelerator.memory": "asks the backend of the current accelerator, which is MUSA",
    "torch.amp": "torch's own; its device type is translated (rows of torch.amp's functions)",
    "torch.amp.autocast_mode": "torch's own; its device type is translated (rows of torch.amp's functions)",
    "torch.amp.grad_scaler": "torch's own; its device type is translated (rows of torch.amp's functions)",
    "torch.backends.cuda": "a setting torch itself keeps, or a question about a CUDA build, which this is not",
    "torch.backends.cudnn": "a setting torch itself keeps and muDNN does not read, or a question about cuDNN",
    "torch.backends.cudnn.rnn": "classes of cuDNN's own recurrent networks, which nothing on MUSA asks for",
    "torch.backends.cusparselt": "a question about cuSPARSELt: not available",
}
