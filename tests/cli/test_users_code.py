"""A user's own methods, with or without a file of options, and what is said where they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import Call, model, own_method, summary

import fedbench as api
from fedbench.config import imports
from fedbench.data import from_arrays
from fedbench.errors import ConfigError
from fedbench.fields import REGISTERED
from fedbench.figures.caption import common, settings_line
from fedbench.figures.results import read
from fedbench.method import Algorithm, positive, register
from fedbench.runs.checks import check_outputs
from fedbench.runs.problem import problem_of
from fedbench.runs.session import Session

SMALL = ("rounds=1", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none", "threads=1")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own, nothing of a user's has been executed. Python keeps no bytecode of it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(imports, "executed", {})
    monkeypatch.delitem(REGISTERED, ("algorithm", "signed"), raising=False)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


SIGN = """def local_final(self, local, client, h):
    {}
    return {{"sign": local.y - client.down.theta}}, {{}}"""


def write(branch: str = "pass", server: str = "mean.sign") -> None:
    Path("mine.py").write_text(own_method("signed", SIGN.format(branch), server))


def options(directory: Path = Path("c")) -> None:
    """A file of options that lacks one of the class's keys."""
    (directory / "algorithm").mkdir(parents=True)
    (directory / "algorithm" / "signed.yaml").write_text("name: signed\nlr: 0.2\n")


def test_a_method_needs_no_file(fedbench: Call) -> None:
    """The class has the defaults; unknown keys are refused by it; a sweep has it beside others."""
    write()
    mine = ["imports=[mine.py]", "algorithm=signed"]
    assert fedbench(*SMALL, *mine, "algorithm.server_lr=0.5", "hydra.run.dir=r")[0] == 0
    choices = api.Run("r").config.algorithm
    assert (choices.name, dict(choices.options)) == ("signed", {"lr": 0.1, "server_lr": 0.5})
    line = "algorithm=signed has lr, server_lr (did you mean 'algorithm.lr'?)"
    assert line in fedbench(*SMALL, *mine, "algorithm.lrr=1")[2]
    assert fedbench("-m", *SMALL, "imports=[mine.py]", "algorithm=fedavg,signed", "hydra.sweep.dir=s")[0] == 0
    names = sorted(run.name.split("-")[0] for run in Path("s").glob("*_*-*"))
    assert names == ["algorithm_fedavg", "algorithm_signed"]
    assert "algorithm.server_lr=1.0" in fedbench("show", "signed", "imports=[mine.py]")[1]


def test_a_key_that_only_the_class_has_can_be_given(fedbench: Call) -> None:
    write()
    options()
    words = ["--config-dir", "c", *SMALL, "imports=[mine.py]", "algorithm=signed"]
    assert fedbench(*words, "algorithm.server_lr=0.5", "hydra.run.dir=r")[0] == 0
    assert dict(api.Run("r").config.algorithm.options) == {"lr": 0.2, "server_lr": 0.5}
    assert fedbench(*words, "-m", "algorithm.server_lr=0.5,0.1", "hydra.sweep.dir=s")[0] == 0
    rates = {api.Run(place).config.algorithm.options["server_lr"] for place in Path("s").glob("server_lr*")}
    assert rates == {0.5, 0.1}


def test_python_takes_a_directory_of_options_and_a_method_of_this_process() -> None:
    options()

    @register("signed")
    class Signed(Algorithm):
        lr: float = positive(0.1)
        server_lr: float = positive(0.01)

        def local_final(self, local, client, h):  # type: ignore[no-untyped-def]
            return {"move": local.y - client.down.theta}, {}

        def server_step(self, server, mean, n, h):  # type: ignore[no-untyped-def]
            return {"theta": server.theta + h.server_lr * mean.move}

    words = [*SMALL, "algorithm=signed"]
    assert dict(api.compose_config(words).algorithm.options) == {"lr": 0.1, "server_lr": 0.01}
    assert dict(api.compose_config(words, config_dir="c").algorithm.options) == {"lr": 0.2}
    assert api.run(words, "one").final_accuracy is not None
    runs = api.sweep(words, {"seed": [0, 1]}, "two", config_dir="c")
    assert [dict(run.config.algorithm.options) for run in runs.runs] == [{"lr": 0.2}] * 2


def test_a_summary_says_the_local_steps_of_a_method(fedbench: Call) -> None:
    """Of which a caption cannot know that it makes one."""
    Path("mine.py").write_text(own_method("signed", "fixed_steps = 1"))
    words = [*SMALL, "imports=[mine.py]", "local.steps=null"]
    assert fedbench(*words, "algorithm=signed", "hydra.run.dir=r")[0] == 0
    assert fedbench(*words, "local.epochs=1", "hydra.run.dir=e")[0] == 0
    assert [summary(Path(place))["local_steps"] for place in "re"] == [1, None]
    assert ", K=1, " in settings_line(common(read(["r"])))


PLAIN = own_method("signed")
BRANCH = SIGN.format("h.lr = h.lr if local.y.sum() > 0 else h.lr")


@pytest.mark.parametrize(
    ("code", "text", "engine", "says"),
    [
        (1, own_method("signed", SIGN.format("pass"), "mean.nothing"), "loop",
         "{file}, line 11: AttributeError: "),
        (1, own_method("signed", BRANCH, "mean.sign"), "vmap",
         "{file}, line 8: a branch depends on the value of a tensor: use torch.where, or engine=loop"),
        (1, PLAIN.replace("server.theta + h.server_lr * mean.delta", "mean.delta[:3]"), "loop",
         "algorithm=signed: server_step returned theta of shape (3,), (650,) is expected\n"),
        (2, PLAIN.replace("mean.delta", "mean.delta.clone().normal_()"), "loop",
         "algorithm=signed: its server_step draws from torch's global generator, so the run could not be "
         "repeated; use n.uniform"),
        (1, PLAIN.replace("mean.delta", "mean.delta.double()"), "loop",
         "algorithm=signed: server_step returned theta of type torch.float64, torch.float32 is expected\n"),
        (2, "x = 1\nx / 0\n", "auto", "{failed}: ZeroDivisionError: division by zero ({file}, line 2)\n"),
        (2, "import sys\nsys.exit(3)\n", "auto", "{failed}: SystemExit: 3 ({file}, line 2)\n"),
        (2, "x = 1\nx +\n", "auto", "{failed}: SyntaxError: invalid syntax (mine.py, line 2)\n"),
    ],
)  # fmt: skip
def test_where_code_of_a_users_fails_is_said(
    fedbench: Call, code: int, text: str, engine: str, says: str
) -> None:
    """The file and line of the user's, in place of an internal error of ours."""
    Path("mine.py").write_text(text)
    words = [*SMALL, "model=logistic", "imports=[mine.py]", "algorithm=signed", f"engine={engine}"]
    found, _, err = fedbench(*words)
    failed = "imports=mine.py: failed while it was executed"
    line = f"fedbench: {says.format(file=Path('mine.py').resolve(), failed=failed)}"
    assert (found, err[: len(line)], err.count("\n")) == (code, line, 1)


AVERAGED = "send what is to be averaged, in the type of theta, or see uploads one by one (stacks = True)"
SEEDED = (
    "so the run could not be repeated; draw from a torch.Generator that is seeded from what the server keeps"
)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("def local_step(self, local, client, h): client.grad(local.y)",
         "its local_step must return a dict of tensors, and returns nothing"),
        ("def broadcast(self, server, survey, n, h): return server.theta",
         "its broadcast must return a dict of tensors, and returns a Tensor"),
        ("def server_step(self, server, mean, n, h): return {'theta': server.theta, 'rounds': 1}",
         "its server_step must return a dict of tensors, and returns an int as 'rounds'"),
        ("def local_final(self, local, client, h): return {'delta': local.y - client.down.theta}",
         "its local_final must return two dicts (upload, what the client keeps), and returns a dict"),
        ("def local_final(self, local, client, h): return {'delta': local.y - client.down.theta}, None",
         "its local_final must return a dict of tensors, and returns nothing"),
        ("def server_init(self, theta, survey, h): return {'thta': theta}",
         "its server_init must return 'theta', and returns thta"),
        ("def local_step(self, local, client, h): return {'y': local.y, 'last': client.grad(local.y)}",
         "its local_step returns 'last', which local_init does not"),
        ("def local_step(self, local, client, h): return {'y': local.y.double()}",
         "its local_step returns 'y' as float64 of shape (650,), and local_init as float32 of shape (650,)"),
        ("def client_init(self, theta, survey, h): return {'c': theta > 0}\n"
         "    def local_final(self, local, client, h): return {'delta': local.y}, {'c': local.y}",
         "its local_final returns 'c' as float32 of shape (650,), and client_init as bool of shape (650,)"),
        ("def local_final(self, local, client, h): return {'delta': local.y.sign().to(torch.int8)}, {}",
         "its local_final sends 'delta' as int8, of which there is no mean; " + AVERAGED),
        ("survey = 'cohort'\n    def survey_upload(self, grad): return {'up': grad > 0}",
         "its survey_upload sends 'up' as bool, of which there is no mean; " + AVERAGED),
        ("def local_init(self, client, h): return {'y': client.down.theta + torch.rand(())}",
         "its local_init draws from torch's global generator, so the run could not be repeated; "
         "use client.uniform or .normal"),
        ("stacks = True\n    def local_final(self, local, client, h): return {'weight': local.y}, {}",
         "its local_final sends 'weight', which is what `stacks` calls the uploads' weights"),
        ("def local_step(self, local, client, h):\n"
         "        return {'y': client.grad(local.y, lambda out: out.loss.mean())}",
         "its loss must return one number for each of 2 samples, and returns float32 of shape ()"),
        ("def sent_bytes(self, upload): return upload.delta.numel() / 8",
         "its sent_bytes must return bytes (an integer) or None, and returns 81.25"),
        ("addressed = ('theta',)",
         "its broadcast addresses 'theta' of shape (650,), not (4, ...): N rows"),
        ("def local_final(self, local, client, h): return {'delta': local.y * np.random.rand()}, {}",
         "its local_final draws from NumPy's global generator, so the run could not be repeated; "
         "use client.uniform or .normal"),
        ("def broadcast(self, server, survey, n, h): return {'theta': server.theta + random.random()}",
         "its broadcast draws from Python's global generator, so the run could not be repeated; "
         "use n.uniform or .normal"),
        ("def server_init(self, theta, survey, h): return {'theta': theta + torch.randn_like(theta)}",
         f"its server_init draws from torch's global generator, {SEEDED}"),
        ("def client_init(self, theta, survey, h): return {'c': torch.rand_like(theta)}",
         f"its client_init draws from torch's global generator, {SEEDED}"),
        ("def bind(self, setting): self.order = torch.randperm(setting.d)",
         f"its bind draws from torch's global generator, {SEEDED}"),
        ("full_gradient = True\n    def broadcast(self, server, survey, n, h): return {'a': server.theta}",
         "its broadcast must return 'theta', at which full_gradient is taken, and returns a"),
        # in place: what a hook is handed may be the server's own, or another client's
        ("def local_step(self, local, client, h): return {'y': local.y.sub_(h.lr * client.grad(local.y))}",
         "its local_step changes local.y in place; return a new tensor"),
        ("def local_final(self, local, client, h):\n"
         "        client.down.theta[3:] *= 2\n        return {'delta': local.y}, {}",
         "its local_final changes client.down.theta in place; return a new tensor"),
        ("def server_step(self, server, mean, n, h): return {'theta': server.theta.add_(mean.delta)}",
         "its server_step changes server.theta in place; return a new tensor"),
        ("caches = True\n    def server_step(self, server, mean, n, h):\n"
         "        return {'theta': server.theta + mean.cached_delta.mul_(0.5)}",
         "its server_step changes mean.cached_delta in place; return a new tensor"),
        ("def personal(self, server, mine): return server.theta.zero_()",
         "its personal changes server.theta in place; return a new tensor"),
        ("def personal(self, theta, mine): return theta",
         "its personal must return a model like server.theta, and returns a Record"),
    ],
)  # fmt: skip
def test_a_hook_that_does_the_wrong_thing_is_named(fedbench: Call, wrong: str, said: str) -> None:
    Path("mine.py").write_text(f"{BEGIN}@register('mine')\nclass Mine(FedAvg):\n    {wrong}\n")
    imports.executed.clear()
    code, _, err = fedbench(*SMALL, "model=logistic", "imports=[mine.py]", "algorithm=mine")
    assert (code, err) == (2, f"fedbench: algorithm=mine: {said}\n")


NET = """
from torch import nn
from fedbench.models import register_model
@register_model("net")
class Net(nn.Module):
    def __init__(self, shape, classes, width: int = 10, kind: str = "whole"):
        super().__init__()
        self.linear, self.kind = nn.Linear(64, width), kind
    def forward(self, x):
        nn.functional.dropout(x)
        out = self.linear(x.flatten(1))
        return {"whole": out, "pair": (out, 1), "none": None}[self.kind]
"""


PLACED = """
from torch import nn
from fedbench.models import register_model
@register_model("placed")
class Placed(nn.Module):
    def __init__(self, shape, classes, head: str = "", linear: bool = False):
        super().__init__()
        last = nn.Linear(4, classes) if linear else nn.Conv2d(4, classes, 1)
        self.body, self.head = nn.Conv2d(1, 4, 8), last
        if head:
            self.head_layer = head
    def forward(self, x):
        x = self.body(x)
        return self.head(x.flatten(1)) if isinstance(self.head, nn.Linear) else self.head(x).flatten(1)
"""


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_model_names_the_layer_of_its_features(fedbench: Call, engine: str) -> None:
    """The same network, whose last layer is linear or a convolution of one pixel."""
    Path("placed.py").write_text(PLACED)
    words = [*SMALL, "imports=[placed.py]", "model=placed", "algorithm=moon", "rounds=2", "algorithm.mu=20"]
    words += [f"engine={engine}", "model.init=he"]
    why = "model=placed: has no features for algorithm=moon: {}; its head_layer can name another"
    assert fedbench.refused(*words) == f"fedbench: {why.format('it has no linear layer')}\n"
    imports.executed.clear()
    no = "fedbench: model=placed: names 'haed' as its head_layer, and has no such layer\n"
    assert fedbench(*words, "model.head=haed")[::2] == (2, no)
    thetas = []
    for place, more in (("a", ["model.linear=true"]), ("b", ["model.head=head"]), ("c", ["model.head=body"])):
        imports.executed.clear()
        assert fedbench(*words, *more, f"hydra.run.dir={place}")[0] == 0
        thetas.append(torch.cat([value.flatten() for value in model(Path(place)).values()]))
    assert (thetas[1] - thetas[2]).norm() > 1e-3  # of other features


def test_labels_are_of_classes(fedbench: Call) -> None:
    body = "def local_init(self, client, h): return {'y': client.down.theta * client.labels.sum()}"
    Path("mine.py").write_text(own_method("mine", body))
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.savez("numbers.npz", x_train=x, y_train=x[:, :1], x_test=x, y_test=x[:, :1])
    words = [*SMALL, "imports=[mine.py]", "algorithm=mine", "dataset=npz", "dataset.path=numbers.npz"]
    said = "algorithm=mine: reads client.labels, but dataset=npz has no classes (regression)"
    assert fedbench.refused(*words, "model=logistic", "dataset.task=regression") == f"fedbench: {said}\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("model.width=11", "model=net: outputs (2, 11), (2, 10) is expected"),
        ("model.kind=pair", "model=net: returns a tuple, a tensor (2, 10) is expected"),
        ("model.kind=none", "model=net: returns nothing, a tensor (2, 10) is expected"),
        ("model.width=a", "model.width=a: must be an integer"),
    ],
)
def test_a_model_with_other_outputs_is_refused(fedbench: Call, word: str, said: str) -> None:
    Path("net.py").write_text(NET)
    assert fedbench.refused(*SMALL, "imports=[net.py]", "model=net", word) == f"fedbench: {said}\n"
    assert [path.name for path in Path().iterdir()] == ["net.py"]


def test_asking_a_model_for_its_outputs_and_gradients_changes_nothing() -> None:
    """Also where it is refused because it draws."""
    Path("net.py").write_text(NET)
    Path("sober.py").write_text(NET.replace("nn.functional.dropout(x)", "pass").replace('"net"', '"sober"'))
    before = torch.get_rng_state()
    problem = problem_of(api.compose_config([*SMALL, "imports=[sober.py]", "model=sober"]), Session())
    assert problem.model.training
    numpys = NET.replace("nn.functional.dropout(x)", "np.random.rand()").replace('"net"', '"nps"')
    Path("numpys.py").write_text(f"import numpy as np\n{numpys}")
    with pytest.raises(ConfigError, match=r"^model=nps: draws random .*\(it uses NumPy's global gen"):
        problem_of(api.compose_config([*SMALL, "engine=loop", "imports=[numpys.py]", "model=nps"]), Session())
    with pytest.raises(
        ConfigError, match=r"^model=net: draws random numbers of its own in training; fedbench"
    ):
        problem_of(api.compose_config([*SMALL, "imports=[net.py]", "model=net"]), Session())
    assert torch.equal(torch.get_rng_state(), before)


def test_where_every_position_has_a_label_it_has_outputs() -> None:
    x = np.ones((4, 5), int)
    data = from_arrays("mine", x, x, x, x, task="sequence", vocabulary=3, classes=2)
    check_outputs("mine", torch.nn.Embedding(3, 2), data)
    with pytest.raises(ConfigError, match=r"model=mine: outputs \(2, 5, 3\), \(2, 5, 2\) is expected"):
        check_outputs("mine", torch.nn.Embedding(3, 3), data)


def test_a_hook_may_change_in_place_what_it_made(fedbench: Call) -> None:
    """A gradient, a clone and the result of an operation; scalars of a local state may change their type."""
    Path("mine.py").write_text(f"{BEGIN}{TEMPORARIES}")
    for engine in ENGINES:
        words = ["imports=[mine.py]", "algorithm=mine", f"engine={engine}", f"hydra.run.dir={engine}"]
        fedbench.done(*SMALL, *words, "dtype=float64")
    found = [torch.cat([part.flatten() for part in model(Path(engine)).values()]) for engine in ENGINES]
    torch.testing.assert_close(*found)


MODEL = """
from dataclasses import dataclass
from fedbench.models.registry import Model, register_model
@register_model("{name}")
@dataclass(frozen=True)
class Mine(Model):
    {body}
    def build(self, shape, classes): ...
"""
ENGINES = ("loop", "vmap")
TEMPORARIES = """
@register("mine")
class Mine(FedAvg):
    def local_init(self, client, h):
        return {"y": client.down.theta, "sum": torch.zeros(())}
    def local_step(self, local, client, h):
        g, y = client.grad(local.y), local.y.clone()
        return {"y": y.sub_(g.mul_(h.lr)), "sum": local.sum + g.norm()}
    def local_final(self, local, client, h):
        d = local.y - client.down.theta
        d[:3] = 0.0
        return {"delta": d.mul_(1 + 0.01 * local.sum)}, {}
    def server_step(self, server, mean, n, h):
        return {"theta": server.theta.clone().add_(mean.delta)}
"""
BEGIN = (
    "import random\nimport numpy as np\nimport torch\n"
    "from fedbench.method import *\nfrom fedbench.algorithms.fedavg import FedAvg\n"
)


REFUSED = {
    "no server_step": (own_method("signed").replace("server_step", "sever_step"),
                       "TypeError: Mine lacks server_step(self, server, mean, n, h)"),
    "undeclared": (own_method("signed").replace("positive(0.1)", "0.05"),
                   "TypeError: Mine.lr is no option: declare it, such as `lr: float = positive(0.05)`, or"),
    "hidden": (f"{BEGIN}@register('signed')\nclass Signed(FedAvg):\n    lr = 0.05\n",
               "TypeError: Signed.lr does not set the default of the option: declare it again"),
    "misspelt": (f"{BEGIN}@register('signed')\nclass Signed(FedAvg):\n    def local_finl(self): ...\n",
                 "TypeError: Signed.local_finl is no hook: did you mean local_final? A helper needs another"),
    "inherited": (f"{BEGIN}class Base(FedAvg):\n    def client_int(self): ...\n"
                  "@register('signed')\nclass Signed(Base): ...\n",
                  "TypeError: Signed.client_int is no hook: did you mean client_init?"),
    "takes too little": (f"{BEGIN}@register('signed')\nclass Signed(FedAvg):\n"
                         "    def local_step(self, local, client): ...\n",
                         "TypeError: Signed.local_step must take (self, local, client, h)"),
    "no tuple": (f"{BEGIN}@register('signed')\nclass Signed(FedAvg):\n    addressed = 'theta'\n",
                 "TypeError: Signed.addressed must be a tuple of names: ('theta',)"),
    "not together": (f"{BEGIN}@register('signed')\nclass Signed(FedAvg):\n    stacks = caches = True\n",
                     "TypeError: Signed cannot have both stacks and caches: what the server keeps of each"),
    "method's name": (own_method("scaffold"),
                      "ValueError: scaffold is a method of fedbench's own: yours needs another name"),
    "a name twice": (own_method("signed") + own_method("signed").replace("class Mine", "class Other"),
                     "ValueError: signed is the name of Mine above: Other needs another"),
    "model's name": (MODEL.format(name="cnn", body="pass"),
                     "ValueError: cnn is a model of fedbench's own: yours needs another name"),
    "model's option": (MODEL.format(name="mine", body="width: int = 5"),
                       "TypeError: Mine.width is no option: declare it, such as `width: float = "),
}  # fmt: skip


@pytest.mark.parametrize(("module", "line"), REFUSED.values(), ids=REFUSED)
def test_what_a_users_class_lacks_is_said_before_a_run(fedbench: Call, module: str, line: str) -> None:
    """With the line of the class; nothing is written, and our own is what it was."""
    Path("mine.py").write_text(module)
    code, _, err = fedbench(*SMALL, "imports=[mine.py]", "algorithm=scaffold")
    assert (code, err.count("\n")) == (2, 1)
    assert f"fedbench: imports=mine.py: failed while it was executed: {line}" in err
    assert f"({Path('mine.py').resolve()}, line " in err
    assert [path.name for path in Path().iterdir()] == ["mine.py"]
    assert REGISTERED["algorithm", "scaffold"].__module__ == "fedbench.algorithms.scaffold"


def test_a_class_of_ones_own_may_set_an_option_anew_and_keep_constants(fedbench: Call) -> None:
    body = "    lr: float = positive(0.3)\n    tries: ClassVar[int] = 3\n"
    head = "from typing import ClassVar\n" + BEGIN
    Path("mine.py").write_text(f"{head}@register('signed')\nclass Signed(FedAvg):\n{body}")
    assert fedbench(*SMALL, "imports=[mine.py]", "algorithm=signed", "hydra.run.dir=r")[0] == 0
    assert api.Run("r").config.algorithm.options["lr"] == 0.3


def test_a_key_of_some_methods_counts_for_those_of_a_sweep(fedbench: Call) -> None:
    """PAdaMFed has no weighting; a key that none of the methods has is refused."""
    words = [*SMALL, "algorithm=padamfed,fedavg"]
    assert fedbench("-m", *words, "algorithm.weighting=uniform", "hydra.sweep.dir=s")[0] == 0
    found = {run.config.algorithm.name: run.config.algorithm.options for run in api.Sweep("s").runs}
    assert found["fedavg"]["weighting"] == "uniform"
    assert "weighting" not in found["padamfed"]
    alone = ["algorithm=scaffold", "experiment=quickstart", "partition.alpha=5"]  # its file sets a weighting
    assert fedbench("-m", *alone, "--dry-run")[0] == 0
    line = "algorithm.weightin=uniform: no such key"
    assert line in fedbench.refused("-m", *words, "algorithm.weightin=uniform")


def test_imports_are_executed_once_and_that_is_said(fedbench: Call) -> None:
    """By the name of a module and by a path, however many runs of a process name them."""
    for name in ("by_name_a", "by_path_b"):
        Path(f"{name}.py").write_text(f"open('{name}.txt', 'a').write('x')\n")
    words = ["imports=[by_name_a,by_path_b.py]", "-m", "seed=0,1", "hydra.sweep.dir=s"]
    code, out, _ = fedbench(*SMALL, *words)
    assert (code, out.count(": executing the code of ")) == (0, 2)
    assert [Path(f"{name}.txt").read_text() for name in ("by_name_a", "by_path_b")] == ["x", "x"]
    assert all("the code of by_path_b.py" in log.read_text() for log in Path("s").glob("*/run.log"))


def test_an_attribute_that_a_client_lacks_is_said_with_those_it_has(fedbench: Call) -> None:
    """Before the run, and where it is only missing in some hooks, during it."""
    Path("mine.py").write_text(own_method("signed", SIGN.format("client.labls"), "mean.sign"))
    words = [*SMALL, "imports=[mine.py]", "algorithm=signed", "engine=loop"]
    code, _, err = fedbench(*words)
    assert (code, err.count("\n")) == (1, 1)
    line = f"fedbench: {Path('mine.py').resolve()}, line 8: AttributeError: a client has no labls here, only "
    assert err.startswith(line)
    Path("mine.py").write_text(own_method("signed", SIGN.format("client.k"), "mean.sign"))
    imports.executed.clear()
    code, _, err = fedbench(*words)
    assert (code, "line 8: AttributeError: a client has no k here, only down, mine, " in err) == (1, True)
