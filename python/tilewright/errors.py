"""What can go wrong, by who can mend it. The messages are the library's own."""


class TilewrightError(RuntimeError):
    """The base of all of them."""


class UsageError(TilewrightError, ValueError):
    """Arguments that do not fit: shapes, strides, dtypes, devices, or keywords that cannot go together."""


class SpecError(TilewrightError, ValueError):
    """A spec that is malformed or that no kernel serves; the message starts with file:line:column."""


class SetupError(TilewrightError):
    """Something of the machine is missing: libtilewright.so, a driver, a compiler, a device, a usable directory."""


class CompileError(TilewrightError):
    """The compiler refused generated source; the message holds its log."""


class DeviceError(TilewrightError):
    """A launch failed, or the simulator found a fault."""


class InternalError(TilewrightError):
    """A defect of Tilewright."""


# By tw_status.
BY_STATUS = {1: UsageError, 2: SpecError, 3: SetupError, 4: CompileError, 5: DeviceError, 6: InternalError}
