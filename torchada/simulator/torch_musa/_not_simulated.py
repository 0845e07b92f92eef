"""Names of torch_musa that are here, with their signatures, but do nothing yet."""


class NotSimulatedError(NotImplementedError):
    """A part of torch_musa that the simulated device does not have yet."""


def refuse(name, part):
    """Raise NotSimulatedError for `name`, a name of the part of torch_musa called `part`."""
    raise NotSimulatedError(
        f"{name} is part of torch_musa 2.7.1, but the simulated device has no {part} yet: "
        "use a MUSA machine for it, or code that does not need it"
    )


def absent(module, names, part):
    """A module `__getattr__` that tells names which are not simulated from names that do not exist."""

    def __getattr__(name):
        if name in names:
            raise AttributeError(
                f"{module}.{name} is part of torch_musa 2.7.1, but the simulated device has no {part} yet"
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
