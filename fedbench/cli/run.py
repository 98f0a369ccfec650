"""`fedbench KEY=VALUE...`: one run, or a sweep, with Hydra's flags. Everything is checked before anything is
written, and no torch is imported before a run is known to be needed."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from omegaconf import MISSING, Container, DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError

from fedbench import process_group
from fedbench.config.compose import Composed, Composer, config_directories
from fedbench.config.config import GROUPS, Settings, container
from fedbench.config.explain import nested_options
from fedbench.config.options import generated, read_config
from fedbench.config.overrides import Grid, written
from fedbench.errors import ConfigError, RunError, UsageError, columns, fitted, nearest, word
from fedbench.fields import rules
from fedbench.runs.lists import ROUNDS_CSV, RUNS_CSV
from fedbench.sweeps.launch import Sweep, failures
from fedbench.sweeps.one import run, run_with_others
from fedbench.sweeps.plan import PlannedRun, points, preview
from fedbench.sweeps.tables import closing_table
from fedbench.version import VERSION

QUICKSTART = """\
The quickstart: `fedbench experiment=quickstart`, that is FedAvg, SCAFFOLD and PAdaMFed with three seeds.
A word such as rounds=60 or algorithm=scaffold asks for one run instead; `fedbench help` explains the keys."""


def main(argv: Sequence[str]) -> int:
    """Obey Hydra's flags and overrides; without any, run the quickstart. Returns the exit code."""
    if argv in (["--version"], ["-V"]):
        print(f"fedbench-runner {VERSION}")
        return 0
    flags = parser()
    args = flags.parse_intermixed_args(argv)
    shown = [args.help, args.hydra_help, args.cfg, args.shell_completion]
    quick = argv in ([], ["--dry-run"])
    if sum(map(bool, [*shown, args.run, args.multirun])) > 1:
        flags.error("only one of --run, --multirun, --cfg, --help, --hydra-help and -sc can be given")
    if args.resolve and not (args.cfg or args.help):
        flags.error("--resolve goes with --cfg or --help")
    composer = Composer(args.config_name, args.config_path, args.config_dir)
    if any(shown):
        with composer.one_line(args.overrides):
            _show(composer, args, flags)
        return 0
    if quick:
        print(QUICKSTART, flush=True)
    words = ["experiment=quickstart"] if quick else args.overrides
    directory = launch(composer, words, args.multirun, args.dry_run)
    if quick and directory is not None:
        from fedbench.figures.plot import main as plot

        return plot([str(directory)])
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of Hydra's flags and ours. It raises UsageError."""

    def refuse(message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        near = nearest(unknown, made._option_string_actions) if unknown.startswith("-") else None
        raise UsageError(
            f"{message} ({f'did you mean {near}? ' if near else ''}--hydra-help lists the flags)"
        )

    made = get_args_parser()
    made.error = refuse  # type: ignore[method-assign]
    taken_out = {"--info", "-i", "--package", "-p", "--experimental-rerun"}  # the last runs code of a pickle
    for action in [one for one in made._actions if taken_out & {*one.option_strings}]:
        made._remove_action(action)
        for option in action.option_strings:
            del made._option_string_actions[option]
    said = "Say what would run, and run nothing"
    made.add_argument("--dry-run", action="store_true", help=said)
    return made


def launch(composer: Composer, overrides: Sequence[str], multirun: bool, dry: bool) -> Path | None:
    """Run what the overrides describe. Returns a sweep's directory, else None. `dry`: print what would run.

    Raises UserError, with exit code 1 if a job of the sweep failed.
    """
    if process_group.here().size > 1 and not dry:
        run_with_others(composer, overrides, multirun, process_group.here())
        return None
    composed = composer.read(overrides)
    sweeps = multirun or composed.sweeps
    if not sweeps:
        composed.one_run()
    _check_places(composed, sweeps)
    if dry:
        if sweeps:
            planned = Sweep(composer, composed).plan()
        else:
            place = composer.place(composed)
            planned = [PlannedRun(0, place.name, place, [], {}, composed.config)]
        for line in preview(planned):
            print(line, flush=True)
    elif sweeps:
        sweep = Sweep(composer, composed)
        directory, runs = sweep.directory, sweep.run()
        print(f"\n{closing_table(directory)}\n\n{directory / RUNS_CSV}\n{directory / ROUNDS_CSV}")
        if failed := failures(runs, directory):
            raise RunError(failed)
        return directory
    else:
        run(composer, composed)
    return None


def _check_places(composed: Composed, sweeps: bool) -> None:
    """Refuse words that say where a single run lies in a sweep, and the reverse. Raises ConfigError."""
    unused, allowed = "hydra.sweep.", "is a sweep's, and this is a single run: hydra.run.dir=DIR"
    if sweeps:
        unused, allowed = "hydra.run.", "is a single run's, and this is a sweep: hydra.sweep.dir=DIR"
    for item in composed.parsed:
        if item.key_or_group.startswith(unused):
            value = str(item.input_line).partition("=")[2]
            raise ConfigError(item.key_or_group, value, f"{allowed} says where it lies")


# ---- flags that show something ---------------------------------------------------------------------------


def _show(composer: Composer, args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Print what Hydra's flags ask for: --help, --cfg, --hydra-help, -sc."""
    hydra, name, words = composer.hydra, composer.loader.config_name, args.overrides
    if args.shell_completion:
        if "query=" in "".join(words[:1]):  # a line that cannot be completed is no error
            with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception, SystemExit):
                _complete(composer, words)
        else:
            hydra.shell_completion(config_name=name, overrides=words)
        return
    composed, sweep = composer.read(words), ""
    if composed.sweeps and args.cfg != "hydra" and not args.hydra_help:
        composed, grids = Sweep(composer, composed).first()
        sweep = _of_sweep(grids)
    if args.help:
        print(page(composed.cfg, composer.loader))
    elif args.hydra_help:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            hydra.hydra_help(config_name=name, args_parser=parser, args=args)
        print(fitted(printed.getvalue(), columns()))
    else:
        read_config(container(composed.job), config_directories(composed.cfg.hydra))  # refuses wrong keys
        HydraConfig.instance().set_config(composed.cfg)
        hydras = OmegaConf.masked_copy(composed.cfg, ["hydra"])
        node = {"all": composed.cfg, "hydra": hydras, "job": composed.job}[args.cfg]
        if args.resolve:
            OmegaConf.set_readonly(composed.cfg.hydra, False)  # set_config made it read-only
            _resolve(node)
        print(f"{sweep}{OmegaConf.to_yaml(node)}", end="")


def _resolve(node: Any) -> None:
    """Put values in the place of references, all the way down. What refers to a value that only a job has
    stays `???`: OmegaConf's own resolve does that up to 2.3, and raises from 2.4 on."""
    for key in list(node) if isinstance(node, DictConfig) else range(len(node)):
        if OmegaConf.is_missing(node, key):
            continue
        try:
            value = node[key]
        except InterpolationToMissingValueError:
            value = MISSING
        if OmegaConf.is_interpolation(node, key):
            node[key] = value
        if OmegaConf.is_config(value):
            _resolve(node[key])


def _of_sweep(grids: Sequence[Grid]) -> str:
    """Comments above a sweep's first run: how many runs there are, and the values of every swept key."""
    every = {tuple(sorted((key, written(value)) for key, value in one.items()))
             for grid in grids for one in points(grid)}  # fmt: skip
    values: dict[str, dict[str, None]] = {}
    for key, tried in (item for grid in grids for item in grid.items()):
        values.setdefault(key, {}).update(dict.fromkeys(map(written, tried)))
    lines = [
        f"# The first of {len(every)} runs. Words pick among these (--cfg hydra shows the sweep itself):"
    ]
    lines += [f"#   {key}={','.join(tried)}" for key, tried in values.items()]
    return "\n".join(lines) + "\n"


def _complete(composer: Composer, words: Sequence[str]) -> None:
    """Print how a shell's command line can be completed; after a comma, with further values of the key."""
    loader = composer.loader.theirs

    def options(group_name: str, results_filter: Any = ObjectType.CONFIG, **_: object) -> list[str]:
        if group_name == "experiment" and results_filter == ObjectType.CONFIG:
            return nested_options(loader.repository, group_name)
        return list(loader.repository.get_group_options(group_name, results_filter))

    loader.get_group_options = options  # Hydra's copies all it knows
    before, _, last = os.environ.get("COMP_LINE", "").rpartition(" ")
    key, _, values = last.partition("=")
    done, comma, value = values.rpartition(",")
    if comma:
        os.environ["COMP_LINE"] = f"{before} {key}={value}"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        composer.hydra.shell_completion(config_name=composer.loader.config_name, overrides=words)
    print(printed.getvalue().replace(f"{key}=", f"{key}={done},") if comma else printed.getvalue(), end="")


def page(cfg: DictConfig, loader: ConfigLoader) -> str:
    """The text of `--help`: all groups and options, and the chosen options' keys with value and meaning."""
    lines = [*fitted(cfg.hydra.help.header, columns()).splitlines(), "", "Groups (group=option):", ""]
    for group in (*GROUPS, "logger", "experiment"):
        lines += _wrapped(f"  {group}: {', '.join(nested_options(loader, group))}", "    ")
    lines += ["", "Keys, with the options chosen now (key=value):", ""]
    for key, rule in rules(Settings):
        lines += _key(key, OmegaConf.select(cfg, key), f"{rule.words}; {rule.meaning}")
    for group in (group for group in GROUPS if group in cfg.hydra.runtime.choices):
        chosen = str(cfg.hydra.runtime.choices[group])
        lines += ["", f"  of {group}={chosen}:"]
        meanings = generated()["keys"].get(group, {}).get(chosen, {})
        lines += [
            line
            for key, value in cfg[group].items()
            if key not in ("name", "grid")
            for line in _key(f"{group}.{key}", value, meanings.get(key, ""))
        ]
    return "\n".join([*lines, "", fitted(cfg.hydra.help.footer.rstrip(), columns())])


def _key(key: str, value: object, meaning: str) -> list[str]:
    said = word(OmegaConf.to_container(value) if isinstance(value, Container) else value)
    return _wrapped(f"  {f'{key}={said}':<30} {meaning}", " " * 33)


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line.rstrip("; "), columns(), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
