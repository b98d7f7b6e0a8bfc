"""``.spline`` of a DataTree: a fit for each node, by its path."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs

X = np.linspace(0, 10, 60)


def run(seed: int) -> xr.Dataset:
    noise = np.random.default_rng(seed).normal(0, 0.1, (2, X.size))
    return xr.Dataset({"u": ("x", np.sin(X) + noise[0]), "v": ("x", np.cos(X) + noise[1])}, {"x": X})


@pytest.fixture
def tree() -> xr.DataTree:
    """Two runs of a model, one of which inherits its labels, and a node of texts."""
    child = run(1).drop_vars("x")
    about = xr.Dataset({"source": "synthetic"})
    return xr.DataTree.from_dict({"/a": run(0), "/a/deep": child, "/about": about})


def test_each_node_gets_the_fit_of_its_dataset(tree: xr.DataTree) -> None:
    fields = tree.spline.fit(x=8, penalty=0.1)
    assert list(fields) == ["/a", "/a/deep"]
    expected = run(1).spline.fit(x=8, penalty=0.1).predict()
    xr.testing.assert_equal(fields["/a/deep"].predict(), expected)
    predictions = xr.DataTree.from_dict({path: field.predict() for path, field in fields.items()})
    xr.testing.assert_equal(predictions["/a/deep/v"], expected.v)


def test_variables_and_weights_go_by_name_and_path(tree: xr.DataTree) -> None:
    weights = tree.map_over_datasets(lambda d: d.map(xr.ones_like).assign(u=2.0 + 0 * d.u) if "u" in d else d)
    fields = tree.spline.fit(x=8, penalty=0.1, variables="u", weights=weights)
    assert list(fields) == ["/a", "/a/deep"] and list(fields["/a"].variables) == ["u"]
    heavy = run(0)[["u"]].spline.fit(x=8, penalty=0.1, weights=xr.full_like(run(0).u, 2.0))
    np.testing.assert_array_equal(fields["/a"].coefficients.u, heavy.coefficients.u)


def test_statistics_of_nodes_merge_under_their_paths(tree: xr.DataTree) -> None:
    bases = {"x": xs.BSpline(8, domain=(0, 10))}
    merged = xs.merge(tree.spline.statistics(bases).values())
    assert merged.holders == ("/a", "/a/deep")
    assert {p.holder for s in tree.spline.statistics(bases, holder="me").values() for p in s.parts} == {"me"}


def test_what_no_node_has_is_refused_and_errors_name_the_node(tree: xr.DataTree) -> None:
    with pytest.raises(ValueError, match=r"no variable of any node 'w'. Known: 'u', 'v', 'source'"):
        tree.spline.fit(x=8, variables="w")
    with pytest.raises(TypeError, match="variables=3 has to be a text or a list or None"):
        tree.spline.fit(x=8, variables=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no variable of any node 'of numbers'"):
        tree["about"].spline.fit(x=8)
    with pytest.raises(ValueError, match="no coordinate 'y'") as caught:
        tree.spline.fit(y=8)
    assert caught.value.__notes__ == ["that is the node '/a' of the tree"]
    with pytest.raises(ValueError, match=r"no node of weights= '/a/deep'\. Known: '/', '/a'"):
        tree.spline.fit(x=8, penalty=0.1, weights=xr.DataTree.from_dict({"/a": xr.ones_like(run(0))}))
