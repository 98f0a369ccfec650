"""What things are called in figures: columns and keys, chosen options, choices that tell lines apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedbench.config.config import GROUPS
from fedbench.figures import style

_AXES = {
    "round": "Round",
    "updates": "Server update",
    "virtual_time": "Virtual time",
    "train_loss": "Training loss",
    "test_loss": "Test loss",
    "test_accuracy": "Test accuracy",
    "validation_loss": "Validation loss",
    "validation_accuracy": "Validation accuracy",
    "final_validation_accuracy": "Final validation accuracy",
    "best_validation_accuracy": "Best validation accuracy",
    "final_accuracy": "Final test accuracy",
    "best_accuracy": "Best test accuracy",
    "rounds_to_target": "Rounds to the target",
    "best_round": "Round of the best accuracy",
    "grad_norm": "Gradient norm",
    "uplink_bytes": "Uplink",
    "downlink_bytes": "Downlink",
    "gradient_evaluations": "Gradient evaluations",
    "staleness_mean": "Mean staleness",
    "staleness_max": "Largest staleness",
    "wall_seconds": "Wall-clock time (s)",
    "algorithm.lr": "Learning rate",
    "algorithm.server_lr": "Server learning rate",
    "partition.alpha": "Dirichlet α",
    "schedule.concurrency": "Concurrent clients",
    "clients.per_round": "Clients per round",
    "clients.total": "Clients",
    "local.steps": "Local steps",
    "local.epochs": "Local epochs",
    "local.batch_size": "Batch size",
    "loss.scale": "Factor on the loss",
    "factor": "Learning rate / own best or prescribed",
}
SYMBOLS = {
    "rounds": "T",
    "clients.total": "N",
    "clients.per_round": "S",
    "schedule.concurrency": "M_c",
    "local.steps": "K",
    "local.epochs": "epochs",
    "local.batch_size": "B",
    "algorithm.lr": "lr",
    "algorithm.server_lr": "server lr",
}
_OPTIONS = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "emnist": "EMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "logistic": "softmax regression",
    "mlp": "MLP",
    "cnn": "CNN",
    "cnn_small": "small CNN",
    "rnn": "RNN",
    "resnet18": "ResNet-18",
    "dirichlet": "Dirichlet",
    "dirichlet_clients": "Dirichlet of clients",
    "powerlaw": "power law",
    "sync": "synchronous",
    "async": "asynchronous",
}
_METRICS = {"R2": "R²", "subset accuracy": "share with all labels right"}
PARTITION_KEYS = ("partition.alpha", "partition.labels", "partition.per_client", "partition.share")
_WIDTH, _FULL = "model.width", 64  # channels of the network that is called ResNet-18
_FROM_THEOREM = ("algorithm.lr", "algorithm.server_lr", "algorithm.beta")


def axis(name: str, metric: str = "accuracy") -> str:
    """A column or key as the label of an axis. `metric`: what accuracies are."""
    label = _AXES.get(name, name.split(".")[-1].replace("_", " "))
    return label.replace("accuracy", _METRICS.get(metric, metric))


def option(name: object) -> str:
    """A chosen option: `Fashion-MNIST`, `CNN`."""
    return _OPTIONS.get(str(name), str(name))


def dataset(choices: Mapping[str, object]) -> str:
    """A data set, with its split where it has several: `EMNIST (digits)`."""
    split = choices.get("dataset.split")
    return option(choices.get("dataset")) + (f" ({split})" if split else "")


def partition(choices: Mapping[str, object]) -> str:
    """A partition with what it is given: `Dirichlet(0.5)`, `shards(2)`, `iid`."""
    details = [value for key in PARTITION_KEYS if isinstance(value := choices.get(key), int | float)]
    return option(choices.get("partition")) + "".join(f"({value:g})" for value in details)


def model(choices: Mapping[str, object]) -> str:
    """A model, with its width where that is not its usual one: `ResNet-18 (width 8)`."""
    width = choices.get(_WIDTH)
    narrow = isinstance(width, int | float) and width != _FULL
    return option(choices.get("model")) + (f" (width {width:g})" if narrow else "")


def line(shown: Sequence[str], choices: Mapping[str, object]) -> str:
    """The name of a line that these keys tell from others: `SCAFFOLD, lr=0.1`, `FedProxVR (SVRG)`.

    `choices`: the choices of its runs, under dotted keys.
    """
    parts: list[str] = []
    variants = [key for key in shown if is_variant(key, choices.get(key))]
    if "algorithm" in shown:
        parts.append(style.of_algorithm(str(choices.get("algorithm"))).label)
        parts[0] += f" ({', '.join(_variant(choices[key]) for key in variants)})" if variants else ""
    for key in shown:
        if key == "partition" or key in PARTITION_KEYS:
            parts.append(partition(choices))
        elif key in ("model", _WIDTH) and "model" in choices:
            parts.append(model(choices))
        elif key in variants and "algorithm" not in shown:
            parts.append(_variant(choices[key]))
        elif key in choices and key != "algorithm" and key not in variants:
            parts.append(_choice(key, choices[key]))
    return ", ".join(dict.fromkeys(parts))


def is_variant(key: str, value: object) -> bool:
    """Whether a choice names a variant of a method (`algorithm.estimator=svrg`)."""
    return key.startswith("algorithm.") and isinstance(value, str)


def _variant(value: object) -> str:
    return str(value).upper() if value in ("svrg", "sarah", "sgd") else str(value)


def _choice(key: str, value: object) -> str:
    if key in GROUPS and value is not None:
        return option(value)
    name = SYMBOLS.get(key, key.split(".")[-1].replace("_", " "))
    nothing = "theorem" if key in _FROM_THEOREM else "full" if key == "local.batch_size" else "none"
    return f"{name}={nothing if value is None else f'{value:g}' if isinstance(value, float) else value}"
