"""The command line: one sub-command per verb, models as sub-commands, one sentence for every mistake."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from . import _check, commands, commands_info, flags, hosts
from .cli_parser import make_parser

EXIT_LOST = EXIT_FAILED = 1
EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130
_MOST_DEVICES = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jaxq`; returns the exit status: 0, 2 after bad input (one sentence on stderr), 130 after an interrupt, 1 if another
    process of the run was lost or the run failed."""
    status = 1
    try:
        status = _main(list(sys.argv[1:] if argv is None else argv))
    finally:
        hosts.leave(status)
    return status


def _main(words: list[str]) -> int:
    if words[:1] == ["study"] and words[1:2] and words[1].startswith("-") and words[1] not in ("-h", "--help"):
        words.insert(1, "supermarket")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)  # ours; the libraries' deprecations are no news to a user
            warnings.showwarning = lambda message, *rest, **more: _say(f"warning: {message}")
            options = flags.parse(make_parser(), words)
            options.command = "jaxq " + " ".join(words)
            _set_up(options)
            (commands_info.dry_run if options.dry_run else options.run)(options)
            sys.stdout.flush()
    except ValueError as error:
        if "--debug" in words:
            raise
        _say(f"error: {' '.join(str(error).split())}")
        return EXIT_BAD_INPUT
    except hosts.LostError as error:
        print(f"jaxq: error: {error}", file=sys.stderr)
        return EXIT_LOST
    except KeyboardInterrupt as error:
        _say(f"interrupted{error if isinstance(error, commands.Kept) else ''}")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of stdout left, as `head` does
        commands.mute()
    except Exception as error:  # a machine without memory, or a fault of ours
        if "--debug" in words:
            raise
        _say(f"error: the run failed ({type(error).__name__}: {_check.short(str(error), 250)}); if it is not the machine's memory "
             "or disk, please report what --debug shows")
        return EXIT_FAILED
    return 0


def _say(text: str) -> None:
    """A line on stderr, once where several processes have it to say."""
    if hosts.first():
        print(f"jaxq: {text}", file=sys.stderr)


def _set_up(options: argparse.Namespace) -> None:
    """What must happen before JAX starts, and refusals that should not wait for a long run."""
    explicit = (options.coordinator, options.num_processes, options.process_id)
    several = options.distributed or explicit != (None, None, None)
    if several:
        _check_explicit(options.distributed, explicit)
    else:
        _check_outputs(options)
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.devices is not None:
        _check.integer("--devices", options.devices, 1, _MOST_DEVICES)
    jax.config.update("jax_num_cpu_devices", options.devices or (cores if options.replicas else 1))
    if options.compile_cache is not None:
        from .study import make_folder

        make_folder(options.compile_cache, "compiled programs")
        jax.config.update("jax_compilation_cache_dir", options.compile_cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if several:
        _join(options, explicit)
    if options.devices is not None and jax.default_backend() != "cpu" and options.devices != jax.local_device_count():
        raise ValueError(f"--devices counts CPU devices; got {options.devices} where JAX uses {jax.local_device_count()} of kind "
                         f"{jax.default_backend()!r}; leave it out, or hide the others, as with CUDA_VISIBLE_DEVICES")


def _check_explicit(distributed: bool, explicit: tuple[str | None, int | None, int | None]) -> None:
    names = ("--coordinator", "--num-processes", "--process-id")
    given = [name for name, value in zip(names, explicit, strict=True) if value is not None]
    if len(given) != (0 if distributed else 3):
        raise ValueError("several processes need either --distributed, on a cluster that JAX knows, or all of --coordinator, "
                         f"--num-processes and --process-id; got {' '.join(['--distributed'] * distributed + given)}")


def _join(options: argparse.Namespace, explicit: tuple[str | None, int | None, int | None]) -> None:
    """Meet the other processes; all but the first fall silent."""
    hosts.start(*explicit)
    hosts.own_stdout()
    own = {"command": None, "process_id": None, "leaf": None, "run": None, "build": None}
    hosts.check_same("flags", repr(sorted((vars(options) | own).items(), key=str)).encode())
    hosts.first_does(lambda: _check_outputs(options))
    if not hosts.first():
        options.out = options.plot = options.out_dir = None
        options.progress = False


def _check_outputs(options: argparse.Namespace) -> None:
    if getattr(options, "save", None) == "paths" and options.out is None:
        raise ValueError("--save paths needs --out FILE.nc, where the paths go; got none; give it, or leave --save out")
    if options.csv and options.json:
        raise ValueError("give one of --json and --csv; got both; leave one out")
    given = {flag: _check.output("output", path) for flag, path in (
        ("--out", options.out), ("--plot", options.plot), ("--checkpoint", options.checkpoint)) if path is not None}
    if len({os.path.realpath(path) for path in given.values()}) < len(given):
        raise ValueError(f"{', '.join(given)} must be different files; got {' '.join(map(str, given.values()))}; rename one")
    if options.plot is not None:
        from .plot_style import check_ending

        check_ending(given["--plot"])
    if options.out_dir is not None and not options.dry_run:  # which writes nothing
        from .study import make_folder

        make_folder(options.out_dir)
