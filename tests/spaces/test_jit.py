"""The decorator of compiled functions."""

from __future__ import annotations

import pytest

from xspline.spaces import jit


def test_one_warning_where_there_is_no_place_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(*, cache: bool = False, **_):
        if cache:
            raise RuntimeError("cannot cache function 'f': no locator available")
        return lambda function: function

    monkeypatch.setattr(jit.numba, "njit", njit)
    jit._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiles them again. Set NUMBA_CACHE_DIR") as caught:
        functions = [jit.compiled(len), jit.compiled(len), jit.compiled(parallel=True)(len)]
    jit._warn_once.cache_clear()
    assert functions == [len, len, len]
    assert len(caught) == 1
    assert caught[0].filename == __file__
