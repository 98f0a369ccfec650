"""Compiled programs on disk: which one is found, by whom, and what counts as damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedbench.engine import compiled
from fedbench.engine.compiled import CompileCache, Compiled, Programs, compiler_missing
from fedbench.models.layers import BatchNorm2d
from fedbench.models.recurrence import recur
from fedbench.torch_internals import load, pack
from fedbench.version import PACKAGE

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(compiler_missing(CPU) is not None, reason="no C++ compiler here")


def package(content: bytes = bytes(range(256)) * 8) -> bytes:
    """What looks like a package, without a program."""
    from io import BytesIO

    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("program", content)
    return stream.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> CompileCache:
    (tmp_path / "programs").mkdir(mode=0o700)
    return CompileCache(tmp_path / "programs")


@pytest.mark.slow
@needs_compiler
def test_a_package_is_the_function_with_the_tensors_of_who_loads_it(tmp_path: Path) -> None:
    """Held tensors are inputs, what is passed on stays the argument, an operator stays whole."""
    table, other = torch.arange(6.0), torch.arange(6.0) * 10
    factor = torch.tensor(3.0)

    def function(local: dict[str, Tensor], rows: Tensor, none: None, w: Tensor) -> tuple[dict, Tensor]:
        moved = local["a"] * table[rows] * factor
        states = recur(moved.expand(4, 1, 2), w, w.new_empty(0), "tanh")
        return {"a": moved, "kept": local["kept"], "twice": moved}, states

    mapped = torch.func.vmap(function, in_dims=(0, 0, None, None))
    args = ({"a": torch.rand(3, 2), "kept": torch.rand(3, 5)}, torch.tensor([[0, 1], [2, 3], [4, 5]]), None)
    args = (*args, torch.rand(2, 2))
    file = tmp_path / "program.pt2"
    pack(mapped, args, (other, table), file)
    expected = mapped(*args)
    for held, scale in (((other, table), 1), ((table, other), 10)):  # the second one is read
        found, states = load(file, held)(*args)
        torch.testing.assert_close(found["a"], scale * expected[0]["a"])
        assert found["kept"] is args[0]["kept"]
        assert torch.equal(found["twice"], found["a"])
        moved = (scale * expected[0]["a"]).expand(4, 1, 3, 2).movedim(2, 0)
        again = torch.func.vmap(lambda x: recur(x, args[3], args[3].new_empty(0), "tanh"))(moved)
        torch.testing.assert_close(states, again)


@pytest.mark.slow
@needs_compiler
def test_two_arguments_that_were_one_tensor_stay_two(tmp_path: Path) -> None:
    """In a run's first step local state may be the client's own vector itself; later it is another."""
    file, one = tmp_path / "program.pt2", torch.rand(3)
    pack(lambda a, b: a - 2 * b, (one, one), (), file)
    a, b = torch.rand(3), torch.rand(3)
    torch.testing.assert_close(load(file, ())(a, b), a - 2 * b)


@needs_compiler
@pytest.mark.slow
def test_another_process_compiles_nothing_and_gives_the_same_bits(tmp_path: Path, own_cache: Path) -> None:
    code = (
        "import sys; from fedbench.cli import main\n"
        "assert not main(sys.argv[1:])\n"
        "print(sorted({'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)))"
    )
    words = ["rounds=2", "engine=compile", "algorithm=scaffold", "progress=none"]
    lines, models = [], []
    for seed, name in ((0, "first"), (0, "second"), (1, "third")):
        place = f"hydra.run.dir={tmp_path / name}"
        done = subprocess.run(
            [sys.executable, "-c", code, *words, place, f"seed={seed}"],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.splitlines()[-1])
        models.append(torch.load(tmp_path / name / "model.pt"))
    assert lines[0] != "[]"
    assert lines[1:] == ["[]", "[]"]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert len(list((own_cache / "programs").glob("*.pt2"))) == 1


MINE = """
from fedbench.method import Algorithm, positive, register
@register("mine")
class Mine(Algorithm):
    lr: float = positive(0.1)
    def local_step(self, local, client, h):
        return {"y": local.y SIGN h.lr * client.grad(local.y)}
    def server_step(self, server, mean, n, h):
        return {"theta": server.theta + mean.delta}
"""


@needs_compiler
@pytest.mark.slow
def test_a_users_method_that_was_changed_is_compiled_again(tmp_path: Path) -> None:
    """Another process that finds other code under the same names of class and file runs that code."""
    found = []
    for sign, engine in (("-", "compile"), ("+", "compile"), ("+", "vmap")):
        (tmp_path / "mine.py").write_text(MINE.replace("SIGN", sign))
        place = tmp_path / (engine + sign)
        words = [f"imports=[{tmp_path / 'mine.py'}]", "algorithm=mine", "rounds=2", f"engine={engine}"]
        command = [sys.executable, "-m", "fedbench", *words, "progress=none", f"hydra.run.dir={place}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(torch.load(place / "model.pt"))
    before, after, right = found
    for name, value in right.items():
        torch.testing.assert_close(after[name], value, rtol=1e-4, atol=1e-6)
        assert not torch.equal(before[name], after[name])


@needs_compiler
@pytest.mark.slow
def test_a_damaged_program_is_compiled_again(
    own_cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fresh() -> Compiled:
        return Compiled(torch.func.vmap(lambda x: x * 2), Programs(CompileCache(own_cache)), "double")

    own_cache.chmod(0o700)
    x, made = torch.rand(3, 4), []
    real = compiled.pack
    monkeypatch.setattr(compiled, "pack", lambda *args: made.append(real(*args)))
    for round_ in range(2):
        assert torch.equal(fresh()(x), 2 * x)
        assert len(made) == 1 + round_
        (file,) = own_cache.glob("*.pt2")
        assert torch.equal(fresh()(x), 2 * x)  # from there
        assert len(made) == 1 + round_
        file.write_bytes(package())  # whole, but no program
    assert torch.equal(fresh()(x), 2 * x)
    assert len(made) == 3
    assert "cannot be used" in caplog.text


@pytest.mark.parametrize("harm", ["cut", "changed", "empty"])
def test_what_is_damaged_is_not_found(store: CompileCache, harm: str) -> None:
    store.put("a.pt2", package())
    file = store.find("a.pt2")
    assert file is not None
    content = bytearray(file.read_bytes())
    if harm == "changed":
        content[len(content) // 2] ^= 1
    file.write_bytes(b"" if harm == "empty" else bytes(content[:-30] if harm == "cut" else content))
    assert store.find("a.pt2") is None


def test_a_place_where_others_write_is_not_used(store: CompileCache) -> None:
    name = store.name("program", "shapes")
    store.put(name, package())
    assert store.find(name) is not None
    assert store.knows("program")
    store.directory.chmod(0o770)
    assert store.find(name) is None
    assert not store.knows("program")


def test_programs_of_a_users_class_are_not_kept(tmp_path: Path, packed: list) -> None:
    """Its code may be another one in the next process."""
    theirs = type("Theirs", (), {"__module__": "their_module"})
    (tmp_path / "programs").mkdir(mode=0o700)
    for owner, kept in ((CompileCache, True), (theirs, False)):
        for _ in range(2):
            programs = Programs(CompileCache(tmp_path / "programs"))
            depends = ("step", ((owner, ("weighting", "uniform")), False), 5)
            Compiled(torch.func.vmap(lambda x: x * 2), programs, depends)(torch.ones(2))
        assert Programs(CompileCache(tmp_path / "programs")).knows(depends) == kept


@pytest.mark.parametrize("file", ["optimizer.py", "engine/executors.py", "data/transforms.py"])
def test_a_program_depends_on_all_code_that_a_step_runs(
    tmp_path: Path, store: CompileCache, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """After a change of it, a program has another name."""
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path / "fedbench")
    shutil.copytree(PACKAGE, tmp_path / "fedbench", ignore=shutil.ignore_patterns("__pycache__", "conf"))
    before = CompileCache(store.directory).name("a", 1)
    with open(tmp_path / "fedbench" / file, "a") as changed:
        changed.write("# another line\n")
    assert CompileCache(store.directory).name("a", 1) != before


def test_a_name_says_all_that_a_program_depends_on(
    store: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(depends: object = "a", shapes: object = 1) -> str:
        return CompileCache(store.directory).name(depends, shapes)

    names = [name(), name("b"), name("a", 2)]
    for target, value in (
        ("fedbench.engine.compiled._cpu", lambda: "another processor"),
        ("fedbench.engine.compiled._sources", lambda: "other sources"),
        ("torch.__version__", "9.9"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(target, value)
            names.append(name())
    with monkeypatch.context() as patched:
        patched.setenv("TORCHINDUCTOR_FREEZING", "1")
        names.append(name())
    with monkeypatch.context() as patched:  # the compiler sets it in the middle of a process
        patched.setenv("TORCHINDUCTOR_CACHE_DIR", "anywhere")
        assert name() == names[0]
    assert len(set(names)) == len(names)
    assert name() == names[0]


def test_no_more_is_kept_than_said(store: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(package())
    monkeypatch.setattr(compiled, "MOST_BYTES", 2 * size)
    for age, name in enumerate(("a.pt2", "b.pt2")):
        store.put(name, package())
        os.utime(store.directory / name, (age, age))
    assert store.find("a.pt2") is not None  # used now: b is the oldest
    store.put("c.pt2", package())
    assert sorted(file.name for file in store.directory.iterdir()) == ["a.pt2", "c.pt2"]


def test_two_that_want_the_same_compile_it_once(store: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def slowly(function: object, args: object, held: object, file: Path) -> None:
        time.sleep(0.3)
        made.append(file)
        file.write_bytes(package())

    monkeypatch.setattr(compiled, "pack", slowly)
    monkeypatch.setattr(compiled, "load", lambda file, held: lambda x: 2 * x)
    results: list[Tensor] = []

    def work() -> None:
        results.append(Compiled(lambda x: x, Programs(store), "double")(torch.ones(2)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert all(torch.equal(result, torch.full((2,), 2.0)) for result in results)
    assert not list(store.directory.glob("*.lock"))


def test_without_a_place_to_write_programs_are_the_process_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(compiled, "pack", lambda f, a, h, file: file.write_bytes(package()))
    monkeypatch.setattr(compiled, "load", lambda file, held: lambda x: 2 * x)
    function = Compiled(lambda x: x, Programs(CompileCache(tmp_path / "file" / "programs")), "double")
    assert torch.equal(function(torch.ones(2)), torch.full((2,), 2.0))
    assert function.seconds > 0


@needs_compiler
@pytest.mark.slow
def test_batch_norm_over_whole_batches_can_be_packed(tmp_path: Path) -> None:
    """Inductor cannot divide by the 0-dim number of samples that whole batches would have."""
    layer = BatchNorm2d(4).train()

    def loss(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        moving = {"running_mean": mean.clone(), "running_var": var.clone()}
        return torch.func.functional_call(layer, moving, (x,)).pow(3).sum()

    function, file = torch.func.vmap(torch.func.grad(loss)), tmp_path / "program.pt2"
    args = (torch.rand(2, 3, 4, 5, 5), torch.zeros(2, 4), torch.ones(2, 4))
    pack(function, args, (), file)
    torch.testing.assert_close(load(file, ())(*args), function(*args))
