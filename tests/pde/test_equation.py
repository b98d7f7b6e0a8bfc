"""Text to terms: what an equation may hold, and what is said about one that cannot be read."""

from __future__ import annotations

import ast
import warnings

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks.constants.missing import FAMILIES
from tests.pde.cases import plane
from xspline.pde.results import root
from xspline.pde.text.equation import Equation, parse
from xspline.pde.text.symbols import CoordinateSymbol, KnownSymbol, Names, Value
from xspline.pde.text.unit_powers import Mismatch, Unit


@pytest.fixture(scope="module")
def field() -> xs.Field:
    return plane().spline.fit(x=6, t=6, penalty=0)


@pytest.fixture(scope="module")
def globe() -> xs.Field:
    time = np.arange("2000-01", "2001-01", dtype="datetime64[M]").astype("datetime64[ns]")
    coords = {
        "member": [1, 2],
        "time": time,
        "lat": ("lat", np.linspace(-10, 10, 8), {"units": "degrees_north"}),
        "lon": ("lon", np.linspace(150, 180, 9), {"units": "degrees_east"}),
    }
    data = xr.DataArray(np.random.default_rng(0).random((2, 12, 8, 9)), coords, tuple(coords), "sst")
    return data.spline.fit(time=xs.Polynomial(2), lat=5, lon=5, penalty=0)


def read(text: str, field: xs.Field, *known: str, **dims: str) -> Equation:
    return parse(text, Names.of(field, dims, known))


def texts(equation: Equation) -> tuple[str, dict[str, str]]:
    terms = {str(power): ast.unparse(factor) for power, factor in equation.terms.items()}
    return ast.unparse(equation.response), terms


@pytest.mark.parametrize(
    ("text", "response", "terms"),
    [
        ("u_t = D * u_xx", "u_t", {"D": "u_xx"}),
        ("u_t=D*(u_xx+u_tt)+S", "u_t - S", {"D": "u_xx + u_tt"}),
        ("u_t + u*u_x = kappa * u_xx", "u_t + u * u_x", {"kappa": "u_xx"}),
        ("u_tt = c**2 * u_xx", "u_tt", {"c**2": "u_xx"}),
        ("u_tt = (c*u_x)**2", "u_tt", {"c**2": "u_x ** 2.0"}),
        ("u_tt = c*c * u_xx - a*u", "u_tt", {"c**2": "u_xx", "a": "-u"}),
        ("u_t = u_xx / Re", "u_t", {"Re**-1": "u_xx"}),
        ("Re * u_t = u_xx", "-u_xx", {"Re": "-u_t"}),
        ("u_t = (a + b*x) * u_x", "u_t", {"a": "u_x", "b": "x * u_x"}),
        ("u_t = b*u + a", "u_t", {"b": "u", "a": "1.0"}),
        ("u_t  =  2E-9 * exp (x)  +  (D * u_x) _x", "u_t - 2e-09 * exp(x)", {"D": "u_xx"}),
        ("u_t = a*(u_x - 1) - (a*u + 2)", "u_t - -2", {"a": "u_x - 1 - u"}),
        ("u_t - D*u_xx = D*u", "u_t", {"D": "u - -u_xx"}),
        ("u_t = sin(2*pi*x) + k*exp(-u**2)", f"u_t - sin(2 * {np.pi} * x)", {"k": "exp(-u ** 2.0)"}),
        ("u_t = +a * u_x**2 / 2", "u_t", {"a": "u_x ** 2.0 / 2"}),
        ("u_t = k**0.5 * u_xx**(1/2)", "u_t", {"k**0.5": "u_xx ** 0.5"}),
        ("u_t = a*a/a*u_x", "u_t", {"a": "u_x"}),
    ],
)
def test_an_equation_is_read_into_a_response_and_terms(
    field: xs.Field, text: str, response: str, terms: dict[str, str]
) -> None:
    known = ("S",) if "S" in text else ()
    assert texts(read(text, field, *known)) == (response, terms)


def test_the_order_of_parameters_is_that_of_the_text(field: xs.Field) -> None:
    assert list(texts(read("b*u + u_t = z*u_x + a*u_xx + c", field))[1]) == ["b", "z", "a", "c"]


def test_names_are_values_coordinates_or_known(field: xs.Field, globe: xs.Field) -> None:
    found = read("u_xt + t*x = S*D*u", field, "S").symbols
    orders = (("x", 1), ("t", 1)) if field.space.names == ("x", "t") else (("t", 1), ("x", 1))
    assert found == {
        "u_xt": Value("u", orders),
        "t": CoordinateSymbol("t"),
        "x": CoordinateSymbol("x"),
        "S": KnownSymbol("S"),
        "u": Value("u"),
    }
    found = read("sst_t + v*sst_yy + lat = D*u_xx + y", globe, "v").symbols
    assert found["sst_t"] == Value("sst", (("time", 1),)) and found["sst_yy"] == Value("sst", (("lat", 2),))
    assert found["u_xx"] == Value("sst", (("lon", 2),)) and found["y"] == found["lat"] == CoordinateSymbol(
        "lat"
    )


def test_dims_go_before_the_usual_letters(globe: xs.Field) -> None:
    found = read("u_t = D*(u_xx + u_ss)", globe, x="lat", s="lon").symbols
    assert found["u_xx"] == Value("sst", (("lat", 2),)) and found["u_ss"] == Value("sst", (("lon", 2),))
    assert Names.of(globe, {"x": "lat"}, ()).letters == {"x": "lat", "t": "time"}


def test_a_known_called_u_leaves_the_field_its_own_name(globe: xs.Field) -> None:
    found = read("sst_t + u*sst_x = D*sst_xx", globe, "u").symbols
    assert found["u"] == KnownSymbol("u") and found["sst_x"] == Value("sst", (("lon", 1),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("D * u_xx", r"has no '='; write for example 'u_t = D \* u_xx'"),
        ("u_t == D * u_xx", "has 2 signs '='"),
        ("u_t = D * = u", "has 2 signs '='"),
        ("u_t = ", r"cannot read '' in the equation .*: one side is empty"),
        ("u_t = D * (u_xx", r"cannot read 'D \* \(u_xx'"),
        ("u_t = D u_xx", r"cannot read 'D u_xx'"),
        ("u_t = D * u_xx^2", r"'D \* u_xx \^ 2' is no arithmetic that an equation may hold; powers are written \*\*"),
        ("u_t = D * u[0]", r"'u\[0\]' is no arithmetic"),
        ("u_t = D * (u if x else t)", "is no arithmetic"),
        ("u_t = D * u.x", r"'u.x' is no arithmetic"),
        ("u_t = D * 'u_xx'", "is no arithmetic"),
        ("u_t = D * True", "'True' is no arithmetic"),
        ("u_t = D * 2j", "'2j' is no arithmetic"),
        ("u_t = D * sine(x)", r"no function 'sine'; did you mean 'sin'\? Known: 'sin', 'cos'"),
        ("u_t = D * np.sin(x)", "no function 'np.sin'"),
        ("u_t = D * __import__('os').system('true')", "no function"),
        ("u_t = D * sin(x, t)", r"'sin\(x, t\)': sin takes one argument"),
        ("u_t = D * sin", r"sin is a function and no parameter; write sin\(\.\.\.\)"),
        ("u_t = D * u_xz", r"u_xz is a derivative along 'z', which is no coordinate here; the letters are .*x for 'x'"),
        ("u_t = D * u_", "u_ is a derivative along no coordinate"),
        ("u_t = D * v_xx", r"v_xx looks like a derivative of 'v'.*not a fitted variable \(u\); .* example vxx"),
        ("u_t = D * S_x", r"S_x looks like a derivative of the known 'S'; pass it as known=\{'S_x': \.\.\.\} itself"),
        ("u_t = D * u_xxxx", "the derivative of order 4 along 'x' is above the degree 3"),
        ("u_t = D*E * u_xx", r"'D \* E' is not linear in its parameters: D and E multiply each other; pass all"),
        ("u_t = D * uxx", r"D and uxx multiply each other.*derivatives are written u_xx"),
        ("u_t = D*u_xx + exp(D*u)", r"'exp\(D \* u\)' is not linear in its parameters: D inside exp"),
        ("u_t = D*u_xx + D**2", r"D enters as D and as D\*\*2, so .* is not linear in it; use one power"),
        ("u_t = (a + 1)**2 * u_x", r"a enters as a\*\*2 and as a"),
        ("u_t = u_xx / (a + u)", "a sum that holds a divides"),
        ("u_t = (a + u)**0.5", "a sum that holds a to the power 0.5"),
        ("u_t = u**a", "a in an exponent"),
        ("u_t = a**x * u", "a to a power that is not a number"),
        ("u_t = a**9**9**9 * u", "a to a power that is not a number"),
        ("u_t = 0.1 * u_xx", "has no parameter: every name in it is the field, a coordinate or known"),
        ("a*u_t = b*u_xx", r"every term of .* has a parameter \(a, b\), which fixes their ratios alone"),
        ("a*u_tt + b*u_xx = 0", r"every term of .* has a parameter \(a, b\), which fixes their ratios alone"),
        ("0*u - 0 = a*u_tt + b*u_xx", r"every term of .* has a parameter \(a, b\)"),
        ("a*u_tt + b*u_xx = S", r"every term of .* has a parameter \(a, b\)"),
        ("x = a*t", r"holds nothing of the field, whose values and derivatives are u, u_…"),
    ],
)  # fmt: skip
def test_texts_that_are_no_linear_equation_are_refused(field: xs.Field, text: str, message: str) -> None:
    known = {"S": 0.0} if "S" in text else {}
    with pytest.raises(ValueError, match=message):
        parse(text, Names.of(field, {}, known))


def test_names_that_clash_are_refused(field: xs.Field, globe: xs.Field) -> None:
    with pytest.raises(ValueError, match="Q in known= does not appear in the equation"):
        read("u_t = D*u_xx + q", field, "Q")
    with pytest.raises(ValueError, match=r"\['sst'\] in known= is a fitted variable too"):
        read("u_t = D*u_xx + sst", globe, "sst")
    with pytest.raises(
        ValueError, match=r"member is a coordinate that was not fitted; pass its values as known=\{'member'"
    ):
        read("u_t = D*u_xx*member", globe)
    with pytest.raises(TypeError, match=r"the equation has to be text, such as .*, not int"):
        parse(3, Names.of(field, None, ()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (
            {"x": "longitude"},
            r"no fitted coordinate 'longitude'; did you mean 'lon'\? Known: 'time', 'lat', 'lon'",
        ),
        ({"x": "lon", "y": "lon"}, "names 'lon' twice; give each coordinate one letter"),
        ({"xx": "lon"}, "'xx' is not a letter"),
        ({1: "lon"}, "1 is not a letter"),
    ],
)
def test_dims_that_do_not_fit_are_refused(globe: xs.Field, dims: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Names.of(globe, dims, ())


def test_dims_have_to_be_a_mapping(globe: xs.Field) -> None:
    with pytest.raises(
        TypeError, match=r"dims has to be a mapping of letters to fitted coordinates, .* not \('x', 'x'\)"
    ):
        Names.of(globe, ("x", "x"), ())  # type: ignore[arg-type]


# --- as people write them


DATA = FAMILIES[0].observed(0.0, 0.01, 0)


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        ("u_t = lambda*u_xx", "'lambda' is a word of Python"),
        ("u_t = 2 u_xx + D*u", "'2 u_xx' is a product, written 2*u_xx"),
        ("u_t = 2u_xx + D*u", "'2u_xx' is a product, written 2*u_xx"),
        ("u_t = D*u_{xx}", "'u_{xx}' is written u_xx"),
        ("du/dt = D*u_xx", "is a derivative, written u_t"),
        ("u_time = D*u_xx", "the derivative along 'time' is written u_t"),
    ],
)
def test_what_is_written_as_on_paper_says_how_it_is_written_here(equation: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"written|word") as caught:
        xs.recover(DATA.rename(t="time"), equation)
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def diffusivity() -> float:
    return xs.recover(DATA, "u_t = D*u_xx").estimate.item()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["space", "distance", "r"])
def test_letters_and_dims_say_what_is_fitted(name: str, diffusivity: float) -> None:
    data = DATA.rename(x=name)
    own = f"u_t = D*u_{name * 2}" if len(name) == 1 else "u_t = D*u_xx"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xs.recover(data, own).estimate.item() == pytest.approx(diffusivity, abs=1e-5)
        found = xs.recover(data, "u_t = D*u_zz", dims={"z": name})
    assert found.estimate.item() == pytest.approx(diffusivity, abs=1e-5)


@pytest.mark.slow
def test_a_coordinate_that_nothing_names_stays_a_batch() -> None:
    both = xr.concat([DATA, 2 * DATA], xr.DataArray(np.array([1, 2]), dims="run", name="run"))
    found = xs.recover(both, "u_t = D*u_xx")
    assert found.estimate.dims == ("parameter", "run")


# --- units and roots


def test_odd_roots_keep_their_sign_and_even_ones_need_a_positive_power() -> None:
    values = np.array([8.0, -8.0])
    np.testing.assert_allclose(root(values, 3), [2, -2])
    np.testing.assert_allclose(root(values, -1), [0.125, -0.125])
    np.testing.assert_allclose(root(values, -3), [0.5, -0.5])
    np.testing.assert_allclose(root(values * 2, 2), [4, np.nan])
    np.testing.assert_allclose(root(values, 0.5), [64, np.nan])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("m2 s-1", "m2 s-1"),
        ("s-1 m**2", "m2 s-1"),
        ("kg/m^3", "kg m-3"),
        ("kg m-2/s", "kg m-2 s-1"),
        ("degC", "K"),
        ("degrees_north", "degree"),
        ("W.m-2", "W m-2"),
        ("1", "1"),
        ("m m-1", "1"),
    ],
)
def test_units_are_read(text: str, written: str) -> None:
    unit = Unit.parse(text, "a")
    assert str(unit) == written and unit.is_known


@pytest.mark.parametrize("text", ["", "1e-3 m", "days since 2000-01-01", "m (depth)"])
def test_units_that_are_not_known_may_cancel(text: str) -> None:
    unit = Unit.parse(text, "a")
    assert not unit.is_known
    assert str(unit * Unit.parse("m", "b") / unit) == "m"


def test_units_of_sums_and_powers() -> None:
    m, s, number = Unit.parse("m", "a"), Unit.parse("s", "b"), Unit(number=2.0)
    unknown = Unit.parse("", "c")
    assert (m + number, number + m, m - m, m + unknown, unknown + m) == (m, m, m, m, m)
    assert str(m**number) == "m2" and str((m / s).to(0.5)) == "m0.5 s-0.5" and str(-m) == "m"
    assert not (m**unknown).is_known and number.to(0.5) == number
    with pytest.raises(Mismatch, match="m and s are added"):
        m + s
