"""The GPU."""

from __future__ import annotations

from typing import Any


class Device:
    id, mem_info = 0, (60 << 30, 80 << 30)

    def __init__(self, device: Any = None) -> None: ...

    def __int__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None: ...

    def synchronize(self) -> None: ...
