"""The shape of the repository: links, layers, sizes, public names, and what a wheel holds."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import piste

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "piste"
LAYERS = {
    "sampling": {"sampling"},
    "fitting": {"fitting"},
    "surrogates": {"sampling", "fitting", "surrogates"},
    "evaluation": {"sampling", "fitting", "surrogates", "evaluation"},
}
BELOW_ALL = {"_errors", "_typing"}
HEAVY = {"torch", "transformers", "onnxruntime", "captum", "openai", "httpx", "ray", "matplotlib"}

MODULES = sorted(
    path for folder in (PACKAGE, *(ROOT / name for name in LAYERS)) for path in folder.rglob("*.py")
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from at_import_time(child)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


# The tree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_the_links_resolve(name: str) -> None:
    link = PACKAGE / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../../{name}"
    assert link.resolve() == (ROOT / name).resolve()
    assert (link / "__init__.py").is_file()


def test_the_root_is_no_package() -> None:
    assert not list(ROOT.glob("*.py"))
    assert (PACKAGE / "py.typed").is_file()
    assert Path(piste.__file__).resolve() == (PACKAGE / "__init__.py").resolve()


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_imports_point_left(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    names = [name for node in ast.walk(tree(path)) for name in imported(node)]
    assert not {name.partition(".")[0] for name in names} & {*LAYERS, "tests", "benchmarks"}
    if layer in LAYERS:
        parts = {name.split(".")[1] for name in names if name.startswith("piste.")}
        assert "piste" not in names
        assert parts <= LAYERS[layer] | BELOW_ALL


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_heavy_libraries_are_imported_when_they_are_used(path: Path) -> None:
    names = [name for node in at_import_time(tree(path)) for name in imported(node)]
    assert not {name.partition(".")[0] for name in names} & HEAVY


def test_importing_and_fitting_needs_no_torch() -> None:
    loaded = run(
        "import sys, json, piste\n"
        "study = piste.explain(lambda texts: [float(len(t)) for t in texts], 'a b c',\n"
        "                      surrogates=('lime', 'shap', 'slalom'), space='raw')\n"
        "assert len(study.attributions) == 21\n"
        "print(json.dumps([name for name in sys.modules]))"
    )
    modules = {name.partition(".")[0] for name in json.loads(loaded)}
    assert not modules & HEAVY
    assert not modules & LAYERS.keys()


# The code -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            length = body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]
            assert length <= 80, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_the_library_never_prints(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree(path))


def test_public_names() -> None:
    assert piste.__all__ == [
        "AutoBudget",
        "InputError",
        "ModelError",
        "PisteError",
        "PisteWarning",
        "Study",
        "explain",
        "explain_each",
        "load_model",
        "load_study",
    ]
    for name in piste.__all__:
        assert getattr(piste, name).__doc__
    assert issubclass(piste.InputError, piste.PisteError)
    assert issubclass(piste.ModelError, piste.PisteError)


# What is shipped ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Names inside the source distribution, a wheel, and a wheel made from that distribution."""
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("clone") / "piste"
    copy.mkdir()
    for name in (*LAYERS, "src", "tests", "benchmarks", "docs", "examples"):
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignore)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
    made = copy.parent / "dist"
    sdist, wheel = _build(copy, made, "build_sdist"), _build(copy, made, "build_wheel")
    with tarfile.open(sdist) as archive:
        source = archive.getnames()
        archive.extractall(made, filter="data")
    again = _build(made / source[0].partition("/")[0], made / "again", "build_wheel")
    return {
        "sdist": [name.partition("/")[2] for name in source],
        "wheel": zipfile.ZipFile(wheel).namelist(),
        "wheel from sdist": zipfile.ZipFile(again).namelist(),
    }


def _build(source: Path, into: Path, what: str) -> Path:
    into.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; print(build_meta.{what}({str(into)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.mark.parametrize("which", ["wheel", "wheel from sdist"])
def test_a_wheel_holds_only_the_package(built: dict[str, list[str]], which: str) -> None:
    tops = {name.partition("/")[0] for name in built[which]}
    assert tops == {"piste", f"piste-{_version()}.dist-info"}
    modules = {name for name in built[which] if name.endswith(".py")}
    expected = {
        f"piste/{path.relative_to(PACKAGE if PACKAGE in path.parents else ROOT).as_posix()}"
        for path in MODULES
    }
    assert modules == expected
    assert {
        "piste/py.typed",
        *(
            f"piste/sampling/models/sentiment/{path.name}"
            for path in (ROOT / "sampling" / "models" / "sentiment").iterdir()
        ),
        *(
            f"piste/evaluation/templates/{path.name}"
            for path in (ROOT / "evaluation" / "templates").iterdir()
        ),
    } <= set(built[which])


def test_a_source_distribution_holds_nothing_else(built: dict[str, list[str]]) -> None:
    tops = {name.partition("/")[0] for name in built["sdist"] if name}
    assert tops <= {
        "src",
        "PKG-INFO",
        "README.md",
        "LICENSE",
        "MANIFEST.in",
        "pyproject.toml",
        "setup.cfg",
    }
    folders = {name.split("/")[1] for name in built["sdist"] if name.startswith("src/")}
    assert folders == {"piste", "piste.egg-info"}
    assert "src/piste/py.typed" in built["sdist"]
    assert "src/piste/sampling/models/sentiment/model.onnx" in built["sdist"]


def _version() -> str:
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    return version
