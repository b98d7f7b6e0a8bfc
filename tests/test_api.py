"""The public names: twins, signatures, statelessness."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import SEASONS, sst
from xspline.accessor import SplineAccessor
from xspline.solve import SOLVERS

NAMES = ["fit", "statistics", "plan", "space", "recover", "constrain", "discover"]


@pytest.mark.parametrize("name", NAMES)
def test_methods_and_functions_are_twins(name: str) -> None:
    method, function = getattr(SplineAccessor, name), getattr(xs, name)
    assert inspect.isfunction(function), f"a submodule shadows xspline.{name}"
    mine, yours = (list(inspect.signature(f).parameters.values())[1:] for f in (method, function))
    assert [(p.name, p.kind, p.default) for p in mine] == [(p.name, p.kind, p.default) for p in yours]


@pytest.mark.parametrize("name", NAMES)
def test_methods_have_the_documentation_of_their_functions(name: str) -> None:
    assert getattr(SplineAccessor, name).__doc__ == getattr(xs, name).__doc__


def test_the_documentation_of_fit_names_every_solver() -> None:
    assert all(f'"{solver}"' in (xs.fit.__doc__ or "") for solver in SOLVERS)


def test_all_names_what_is_public_and_no_more() -> None:
    public = {name for name, value in vars(xs).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert set(xs.__all__) == public - {"annotations"} | {"synthetic"}


def test_warnings_point_at_the_line_of_the_user() -> None:
    data = xr.DataArray(np.sin(np.linspace(0, 3, 40)), dims="x")
    with pytest.warns(UserWarning, match="its labels are taken as 0..39") as from_method:
        data.spline.fit(x=8)
    dataset = xr.Dataset({"u": data.assign_coords(x=np.arange(40.0)), "other": ("y", np.zeros(3))})
    with pytest.warns(UserWarning, match=r"not fitted.*other") as from_function:
        xs.fit(dataset, x=8)
    assert {w.filename for w in (*from_method, *from_function)} == {__file__}


def test_methods_of_fields_take_the_same_arguments() -> None:
    where = ["chunks", "device", "extrapolate", "mask"]
    errors = ["stderr", "method", "draws", "seed", "smoothing_uncertainty"]
    assert parameters(xs.Field.predict) == ["self", "at", *where, *errors, "coords"]
    assert parameters(xs.Field.derivative) == ["self", "at", "orders", *where, *errors, "orders_kwargs"]
    for method in (xs.Field.gradient, xs.Field.laplacian):
        assert parameters(method) == ["self", "at", "dims", "geometry", *where, *errors]
    assert sorted(parameters(xs.Field.stderr)) == sorted(
        ["self", "at", *where, *errors[1:], "simultaneous", "coords"]
    )
    assert parameters(xs.Field.sample) == ["self", "n", "seed", "smoothing_uncertainty"]
    assert parameters(xs.Field.cross_validate) == ["self"]


def parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_functions_and_accessors_agree() -> None:
    data = sst(months=24)
    a, b = data.spline.fit(lat=6, penalty=0.1), xs.fit(data, lat=6, penalty=0.1)
    np.testing.assert_array_equal(a.coefficients, b.coefficients)


def test_accessors_hold_no_state() -> None:
    data = sst(months=12)
    before = vars(data.spline).copy()
    data.spline.fit(lat=6, penalty=0)
    assert vars(data.spline) == before
    dataset = data.to_dataset()
    assert dataset.sst.spline is not dataset.sst.spline


def test_hints_resolve_at_run_time() -> None:
    for name in NAMES:
        assert typing.get_type_hints(getattr(xs, name))


def test_a_coordinate_called_like_a_parameter_goes_through_the_mapping() -> None:
    data = xr.DataArray(np.sin(np.linspace(0, 3, 40)), {"weights": np.linspace(0, 1, 40)}, "weights")
    field = data.spline.fit({"weights": 8}, penalty=0)
    np.testing.assert_allclose(field.predict(), data, atol=1e-3)


def test_plan_and_space_compute_nothing() -> None:
    import dask

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("something was computed")

    data = sst(months=24).chunk(time=6)
    with dask.config.set(scheduler=refuse):
        space = data.spline.space(lat=6, lon=8, time=SEASONS)
        text = repr(data.spline.plan(space))
        lazy = data.spline.fit(space, penalty=0.1, compute=False)
        predicted = lazy.predict()
        predicted.to_dataset(name="p")
    assert "192" in text and space.size == 192
    assert all(word in text for word in ("none", "static", "any"))


def test_fit_computes_exactly_once() -> None:
    import dask
    import dask.threaded

    calls = []

    def counted(dsk: object, keys: object, **kwargs: object) -> object:
        calls.append(keys)
        return dask.threaded.get(dsk, keys, **kwargs)

    dataset = xr.Dataset({"sst": sst(months=24), "sal": sst(months=24, seed=2)}).chunk(time=6)
    with dask.config.set(scheduler=counted):
        field = dataset.spline.fit(lat=6, lon=8, time=SEASONS, penalty=0.1)
    assert len(calls) == 1
    assert all(isinstance(fit.coefficients, np.ndarray) for fit in field.fits.values())


def test_the_plan_shows_the_solver_of_the_penalty() -> None:
    x = np.linspace(0, 1, 400)
    chunked = da.zeros((400, 400, 400), chunks=100, dtype="f4")
    data = xr.DataArray(chunked, dict(zip("abc", [x] * 3, strict=True)), ("a", "b", "c"), "u")
    bases = dict.fromkeys("abc", 100)
    rough = xs.Roughness(1e-3)

    def solvers(**options: Any) -> list[str]:
        return [row.solver for row in data.spline.plan(bases, **options).rows]

    assert solvers(penalty=1e-3) == ["spectral", "separable", "iterative"]
    assert solvers(penalty=rough) == ["spectral", "iterative", "iterative"]
    assert solvers() == solvers(penalty="reml") == ["spectral", "iterative", "iterative"]
    assert solvers(penalty=rough, solver="iterative") == ["iterative"] * 3
    assert solvers(penalty="gcv") == ["none"] * 3  # needs the inverse
    assert "conjugate gradients" in data.spline.plan(bases, penalty=rough).rows[0].reason
    small = dict.fromkeys("abc", 8)
    assert data.spline.plan(small).rows[0].solver in ("banded", "dissection", "dense")
