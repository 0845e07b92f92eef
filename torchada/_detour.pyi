"""In-place redirection of C callables and types. How it works and what it cannot do: docs/detour.md."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, final

_T = TypeVar("_T")

@final
class Handle:
    """One redirected place. Dropping the handle does not undo it."""

    @property
    def active(self) -> bool:
        """True until restore()."""

    @property
    def target(self) -> Any:
        """The object that is redirected (a descriptor for a bound class method, the builtin for a staticmethod)."""

    @property
    def kind(self) -> Literal["function", "method", "getter", "new", "init"]: ...
    def restore(self) -> None:
        """Undo the detour; doing it twice is fine.

        RuntimeError when somebody else has written the place since; nothing is changed then.
        """

def configure(
    strings: dict[str, str],
    device_type: type | None = None,
    devices: dict[Any, Any] | None = None,
    plain: type | None = None,
    modes: Callable[[], bool] | None = None,
) -> Literal["payload", "lookup", "none"]:
    """Say what is translated, for all detours of the process at once. `configure({})` clears.

    strings: "cuda" and "cuda:<digits>" -> replacement; "cuda" must be there. An index that is not listed keeps its
    digits and takes the word of "cuda".
    device_type, devices: native cuda devices, objects of exactly this type -> translated ones.
    plain: methods without a shim get the device itself for a name of at most six characters, when they are called on
    an object of exactly this type and the device is told by "payload"; objects of a subclass get the translated name.
    modes: a builtin without arguments; while it answers False, getters of objects of exactly the type plain ask `other`
    before the original, which saves a question where `other` says True.
    Returns how a cuda device object is told: "payload" (two bytes of the object, proven on the given ones: a few ns),
    "lookup" (hash and equality) or "none" (no device_type).
    ValueError, TypeError: a key or value of the wrong form. RuntimeError: free-threaded build.
    """

def translate(obj: _T, /) -> _T:
    """The translation of a cuda string (str subclasses by content) or device; any other object comes back itself."""

def redirect(
    target: Any,
    positions: tuple[int, ...] = (),
    keywords: tuple[str, ...] = (),
    shim: Callable[..., Any] | None = None,
    if_keyword: str | None = None,
    if_position: int = ...,
) -> Handle:
    """Redirect a built-in function, a method descriptor or a class method descriptor of a C type.

    A staticmethod object stands for its function, a bound class method for its descriptor.
    positions (0-based, self not counted) and keywords are translated on every call. Then `shim(original, *args,
    **kwargs)` runs, for methods `shim(original, self, *args, **kwargs)`; `original` is a native object that runs the
    original C function. Without a shim, or when if_keyword is given and not passed, the original runs. if_position is
    the position (0-based, self not counted) at which that argument can be passed as well.
    TypeError: not such an object, or one of the interpreter's own. ValueError: positions, if_keyword or if_position of
    the wrong form. RuntimeError: already redirected, not configured, no trampoline left, free-threaded build.
    """

def redirect_getter(descr: Any, other: Any = None, shim: Callable[[Any, Any], Any] | None = None) -> Handle:
    """Redirect the getter of a getset descriptor of a C type.

    When the original gives False, the getter of `other` (same type) is asked; where that gives a device, the value is
    whether cuda devices become such a device. Then `shim(value, self)` has the last word. Writing the attribute is
    unchanged. Errors as for redirect().
    """

def redirect_new(
    tp: type,
    positions: tuple[int, ...] = (),
    keywords: tuple[str, ...] = (),
    cache: dict[str, Any] | None = None,
    shim: Callable[..., Any] | None = None,
) -> Handle:
    """Redirect the constructor of a C type, and of the subclasses that inherit it.

    cache (a dict): when `tp` itself is called with one exact str that is a key, the value is returned.
    `shim(original, cls, *args, **kwargs)`; call `original(cls, ...)`.
    TypeError: the constructor is inherited or written in Python; a cache for a type that has an initialiser.
    Other errors as for redirect().
    """

def redirect_init(
    tp: type,
    positions: tuple[int, ...] = (),
    keywords: tuple[str, ...] = (),
    shim: Callable[..., Any] | None = None,
) -> Handle:
    """Redirect the initialiser of a C type, and of the subclasses that inherit it.

    `shim(original, self, *args, **kwargs)`, which returns None; call `original(self, ...)`. Errors as for
    redirect_new().
    """

def self_check() -> dict[str, str]:
    """Prove each kind on throw-away objects of this interpreter: kind -> "ok" or the reason why not."""
