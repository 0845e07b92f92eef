"""The "musagraphs" backend: `torch.compile(backend="musagraphs")` captures graphs without generating code."""

from ..._renamed import execute

execute("torch._dynamo.backends.cudagraphs", globals())
