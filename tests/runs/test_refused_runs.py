"""What a run refuses once its data, its method and its schedule are known, in one line."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from fedbench.api import compose_config
from fedbench.errors import ConfigError, UserError
from fedbench.files import as_yaml
from fedbench.runs.run import Run

TWO = "eval.model=mean_of_two"
FEDBN = "algorithm=fedbn model=mlp model.norm=layer"
SIX = "schedule=async clients.total=6 clients.per_round=2"
AT_ONCE = "keeps state at the clients, so no client can work on two jobs at once, as client "
EXPONENTIAL = "lr_schedule=exponential lr_schedule.factor"
AVERAGE, UNEQUAL = "algorithm.server_lr=average", "local.steps=null local.epochs=1 partition=dirichlet"
EVERYONE, ONE_K = "clients.per_round=20", "is defined for one number of local steps only, which excludes "
SHORT = " GiB of memory, but only "
LARGEST = "3.4e+38, the largest number of dtype=float32"

REFUSED = [
    # a method and what goes with it
    ("algorithm=led", "algorithm=led: is defined for full participation"),
    ("algorithm=padamfed local.steps=null local.epochs=1 partition=dirichlet", "algorithm.lr=null: "),
    (f"algorithm=vrl_sgd {EVERYONE} {UNEQUAL}", f"algorithm=vrl_sgd: {ONE_K}"),
    (f"algorithm=vrl_sgd {EVERYONE} local.epochs_range=[1,2]", f"algorithm=vrl_sgd: {ONE_K}"),
    (f"algorithm=vrl_sgd {EVERYONE} participation.stragglers=0.3", f"algorithm=vrl_sgd: {ONE_K}"),
    ("algorithm=dude_asgd local.steps=3", "local.steps=3: dude_asgd makes exactly 1"),
    ("algorithm=ringmaster_asgd schedule=async clients.per_round=1 schedule.staleness=3",
     "schedule.staleness=3: must be null: the algorithm discards what arrives too late"),
    (f"algorithm=masfl {SIX} schedule.staleness=4", f"algorithm=masfl: {AT_ONCE}", "(schedule.staleness)"),
    (f"algorithm=scaffold {SIX} schedule.staleness=[2,0,1]", f"algorithm=scaffold: {AT_ONCE}",
     "(schedule.staleness)"),
    (f"algorithm=dude_asgd {SIX} schedule.pool=all schedule.concurrency=6 delay=exponential local.steps=1",
     f"algorithm=dude_asgd: {AT_ONCE}", "(schedule.pool)"),
    (f"algorithm=fedbuff {SIX} optimizer=adam optimizer.keep=true schedule.staleness=3",
     f"optimizer.keep=true: {AT_ONCE}", "(schedule.staleness)"),
    (f"{FEDBN} {SIX}", "schedule=async: must be sync: fedbn's clients evaluate"),
    ("algorithm=padamfed algorithm.scale=2 algorithm.server_lr=0.1", "algorithm.scale=2"),
    ("algorithm=padamfed algorithm.scale=0", "algorithm.scale=0"),
    ("algorithm=masfl algorithm.scale=2", "algorithm.scale=2"),  # its theorem gives beta alone
    ("algorithm=fedcm algorithm.beta=0", "algorithm.beta=0: must be"),
    ("algorithm=feddyn algorithm.alpha=0", "algorithm.alpha=0: must be"),
    ("algorithm=fedasync algorithm.staleness=hinge", "algorithm.a=0.5: must be another number with"),
    ("algorithm=fedasync algorithm.staleness=constant algorithm.a=3", "algorithm.a=3", "which has no a"),
    ("algorithm=fedasync algorithm.b=9", "algorithm.b=9.0: must be 4 (or not given)", "which has no b"),
    ("algorithm=fadas algorithm.da_form=min", "algorithm.da_form=min: must be scale (or not given) unless"),
    ("algorithm=fadas algorithm.beta2=1", "algorithm.beta2=1: must be"),
    ("algorithm=fedadam algorithm.beta1=1", "algorithm.beta1=1: must be"),
    ("algorithm=fedavgm algorithm.momentum=1", "algorithm.momentum=1: must be"),
    ("algorithm=fedams algorithm.epsilon=0", "algorithm.epsilon=0: must be > 0, or algorithm.vhat_init"),
    ("algorithm=fednova algorithm.mu=-0.1", "algorithm.mu=-0.1: must be"),
    ("algorithm=fedhyper algorithm.alpha_min=1.5", "algorithm.alpha_min=1.5: must be"),
    ("algorithm=feddyn algorithm.weighting=samples", "algorithm.weighting=samples: no such key"),
    ("algorithm=slowmo algorithm.weighting=size", "algorithm.weighting=size: must be one of"),
    # a server's step that is the mean of the clients' models
    (f"algorithm=fedadam {AVERAGE}", "a number > 0: its server divides every coordinate by a second moment"),
    (f"algorithm=asyncfeded schedule=async {AVERAGE}", "it weighs every arrival by its distance"),
    (f"algorithm=ace schedule=async {AVERAGE}", "its clients send gradients, not models"),
    (f"algorithm=feddyn {AVERAGE}", "algorithm.server_lr"),
    (f"algorithm=fedavgm {AVERAGE}", "algorithm.momentum=0 would not"),
    (f"algorithm=fedbuff algorithm.momentum=0.5 schedule=async {AVERAGE}", "algorithm.momentum=0 would not"),
    (f"algorithm=fednova {UNEQUAL} {AVERAGE}", "unequal local steps are normalised"),
    (f"algorithm=fednova schedule=async lr_schedule=exponential {AVERAGE}", "jobs different rates"),
    (f"algorithm=padamfed algorithm.lr=1 algorithm.beta=1 {UNEQUAL} {AVERAGE}", "clients make unequal steps"),
    (f"algorithm=padamfed algorithm.scale=2 {AVERAGE}", "it needs algorithm.server_lr=null, not average"),
    (f"server_lr_schedule=exponential {AVERAGE}", "=exponential: must be constant"),
    (f"algorithm=adamasfl algorithm.lr=1 schedule=async lr_schedule=exponential {AVERAGE}",
     "lr_schedule gives an update's jobs different rates"),
    ("algorithm.server_lr=avrage", "> 0, or average (did you mean 'average'?)"),
    # the clients' optimizer
    ("optimizer.nesterov=true", "optimizer.nesterov=true: needs optimizer.momentum > 0"),
    ("optimizer.keep=true", "optimizer.keep=true: optimizer=sgd without momentum has no state"),
    ("optimizer.momentum=1", "optimizer.momentum=1: must be a number in [0, 1)"),
    ("optimizer=adam optimizer.momentum=0.9", "optimizer.momentum=0.9: no such key; optimizer=adam has"),
    ("optimizer=adam optimizer.epsilon=0", "optimizer.epsilon=0: must be a number > 0"),
    # rates over rounds
    ("algorithm=padamfed lr_schedule=cosine", "lr_schedule=cosine: must be constant, or algorithm.lr given"),
    ("algorithm=masfl algorithm.lr=null lr_schedule=cosine", "algorithm.lr=null"),
    ("algorithm=ca2fl lr_schedule=cosine", "algorithm=ca2fl: caches displacements, which under lr_schedule"),
    ("algorithm=fedsps lr_schedule=exponential", "fedsps has no algorithm.lr"),
    ("algorithm=fedexp server_lr_schedule=exponential", "fedexp has no algorithm.server_lr"),
    ("lr_schedule=step", "lr_schedule.milestones=null: must be a list of different rounds"),
    ("lr_schedule=step lr_schedule.milestones=[3,3]", "lr_schedule.milestones=[3,3]: must be"),
    ("lr_schedule=step lr_schedule.milestones=3", "lr_schedule.milestones=3: must be"),
    ("lr_schedule=exponential lr_schedule.factor=0", "lr_schedule.factor=0: must be"),
    ("lr_schedule=cosine lr_schedule.min=1.5", "lr_schedule.min=1.5: must be"),
    ("lr_schedule.warmup=-1", "lr_schedule.warmup=-1: must be"),
    ("lr_schedule=linear", "lr_schedule=linear: must be one of constant, cosine, exponential, step"),
    ("lr_schedule.factor=0.9", "lr_schedule.factor=0.9: no such key; lr_schedule=constant has warmup"),
    (f"{EXPONENTIAL}=1e60", f"lr_schedule.factor=1e+60: must be smaller: the rate would be above {LARGEST}"),
    (f"{EXPONENTIAL}=8.2e7 rounds=6", f"the rate would be above {LARGEST}, in round 6"),  # 0.1 * 8.2e7^5
    ("lr_schedule=cosine algorithm.lr=1e60", f"algorithm.lr=1e+60: must be at most {LARGEST}"),
    # the task of the data
    ("loss.kind=mse", "loss.kind=mse: does not fit dataset=digits (classification); must be cross_entropy"),
    ("loss.kind=hinge", "loss.kind=hinge: must be one of cross_entropy, mse, bce, or null"),
    ("NUMBERS loss.kind=bce", "loss.kind=bce: does not fit dataset=npz (regression); must be mse"),
    ("aggregation=krum byzantine=2", "clients.per_round=5: must be at least 7 with aggregation=krum"),
    ("aggregation=median algorithm=mime", "aggregation=median: must be mean: mime also averages a survey"),
    ("aggregation=median algorithm=local", "aggregation=median: must be mean: local's clients send nothing"),
    (f"aggregation=median algorithm=fedbuff {SIX}", "aggregation=median: must be mean: fedbuff weighs late"),
    ("participation.attack=sign_flip algorithm=local", "participation.attack=sign_flip: must be none: "),
    ("NUMBERS participation.attack=label_flip", "participation.attack=label_flip: flips labels of classes"),
    (f"NUMBERS partition=iid {FEDBN}",
     "algorithm=fedbn: needs test samples of the clients' own (partition=natural or dataset.pool, no "
     "hold_out): fedbn's clients evaluate their own models"),
    ("eval.metrics=[auroc] algorithm=local", "eval.metrics=[auroc]: needs test samples of the"),
    ("NUMBERS partition=iid eval.clients=true", "eval.clients=true: needs test samples of the"),
    ("NUMBERS partition=iid eval.finetune_steps=2", "eval.finetune_steps=2: needs test samples of"),
    ("NUMBERS partition=dirichlet", "partition=dirichlet: divides by class, and this data set has no"),
    ("NUMBERS dataset.augment=crop_flip", "dataset.augment=crop_flip: must be none"),
    ("dataset=reviews model=logistic", "model=logistic: needs images or features; samples are token"),
    ("dataset=digits model=embedding_rnn", "model=embedding_rnn: needs token sequences"),
    ("local.batch_size=2000", "local.batch_size=2000: must be at most the 1437"),
    ("init_from=nowhere.pt", "init_from=nowhere.pt: there is no such file"),
    # what memory cannot hold
    ("rounds=1000000000000", "rounds=1000000000000: a schedule of 5,000,000,000,000 jobs needs", SHORT),
    ("model=mlp model.hidden=[1000000000000]", "model=mlp: a model of 75,000,", " parameters needs", SHORT),
    ("model=mlp model.hidden=[1000000000000000000]", "model=mlp: a model of inf parameters needs", SHORT),
    ("algorithm=scaffold clients.total=1400 model=mlp dtype=float64 model.hidden=[800000] state.place=memory",
     "clients.total=1400: scaffold's state of 1,400 clients, 60,000,010 numbers each, and 60,000,010 at "
     "the server, needs about", SHORT),
    # rates over rounds
    ("algorithm=padamfed lr_schedule.warmup=5", "lr_schedule.warmup=5: must be 0, or algorithm.lr given:"),
    ("algorithm=feddyn server_lr_schedule.warmup=5",
     "server_lr_schedule.warmup=5: must be 0: feddyn has no algorithm.server_lr"),
    ("algorithm=fedavg algorithm.server_lr=average server_lr_schedule.warmup=2",
     "server_lr_schedule.warmup=2: must be 0: algorithm.server_lr=average follows lr_schedule"),
    ("algorithm=feddyn server_lr_schedule=cosine", "server_lr_schedule=cosine: must be constant: feddyn has"),
    # the model that is evaluated
    (f"eval.train=true {FEDBN}", "eval.train=true: must be false: it is of one model, but fedbn's clients"),
    ("eval.grad_norm=true algorithm=local", "eval.grad_norm=true: must be false: it is of one model"),
    ("eval.objective=true algorithm=local", "eval.objective=true: must be false: it is of one model"),
    ("eval.global_model=true", "eval.global_model=true: must be false: test_accuracy is fedavg's global"),
    (f"{TWO} {FEDBN}", f"{TWO}: must be last: fedbn's clients evaluate their own"),
    (f"{TWO} model=cnn model.norm=batch", f"{TWO}: must be last: batch norm's statistics belong to one"),
]  # fmt: skip


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The words for a data set of numbers."""
    file = tmp_path_factory.mktemp("data") / "numbers.npz"
    x = np.random.default_rng(0).normal(size=(60, 3))
    np.savez(file, x_train=x[:40], y_train=x[:40] + 1, x_test=x[40:], y_test=x[40:] + 1)
    return f"dataset=npz dataset.path={file} dataset.task=regression"


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_what_does_not_go_together_is_refused(numbers: str, case: tuple[str, ...]) -> None:
    given, *said = case
    with pytest.raises(UserError) as refused:
        Run(compose_config(given.replace("NUMBERS", numbers).split()))
    assert all(part in str(refused.value) for part in said), refused.value
    assert "\n" not in str(refused.value)


def test_the_largest_and_the_smallest_rate_that_fit_are_taken() -> None:
    """0.1 * 8e7^5 = 3.28e38 and 0.1 * 3e-8^5 = 2.4e-39 in the sixth round; in float64 far more and less."""
    for words in ("=8e7", "=8.2e7 dtype=float64", "=5e-8", "=3e-8 dtype=float64"):
        Run(compose_config(["rounds=6", *f"{EXPONENTIAL}{words}".split()]))


def test_batch_norm_of_one_value_per_channel_is_refused() -> None:
    """On images of 8 x 8, ResNet-18's last maps have one pixel: with one sample, a value is its own mean."""
    words = ["model=resnet18", "model.width=2", "model.norm=batch"]
    with pytest.raises(ConfigError, match=r"^local\.batch_size=1: batch norm in the layer \S+ has one value"):
        Run(compose_config([*words, "local.batch_size=1"]))
    Run(compose_config([*words, "local.batch_size=2"]))
    Run(compose_config([*words[:2], "model.norm=group", "local.batch_size=1"]))


@pytest.mark.parametrize(
    ("steps", "said"), [("local.steps=1", 0), ("local.steps=2", 4), ("local.sampler=blocks", 4)]
)
def test_a_rest_of_one_sample_with_batch_norm_is_said(steps: str, said: int) -> None:
    """Four clients with 9 samples each: the second mini-batch of 8 has one, if a job gets there."""
    words = ["model=resnet18", "model.width=2", "model.norm=batch", "local.batch_size=8", "clients.total=4"]
    words += ["clients.per_round=2", "dataset.train_samples=36", "partition=iid", "local.steps=1", steps]
    notes = Run(compose_config(words)).problem.notes
    expected = [f"{said} of 4 clients have such mini-batches"] * (said > 0)
    assert [note.split(": ")[1] for note in notes if note.startswith("batch norm in the layer ")] == expected


def test_a_path_that_is_no_utf8_is_written_and_read_back() -> None:
    """As Python has the byte 0xe9 of a path under LC_ALL=POSIX."""
    given = {"path": "caf\udce9", "text": "é"}
    assert yaml.safe_load(as_yaml(given)) == given
