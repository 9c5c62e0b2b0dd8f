"""What the commands about the steady state do: estimate it, its theory, and the fit of eta_n."""

from __future__ import annotations

import argparse
from typing import Any

from . import flags, tables
from .commands import Kept, finish, no_plot, write

_LEVELS = 16   # lines of a table


def stationary(options: argparse.Namespace) -> None:
    """`jaxq stationary MODEL`."""
    from .simulate import Interrupted
    from .stationary import stationary as run

    model = options.build(options)
    if options.horizon is not None and options.rel_error is not None:
        raise ValueError("give either --horizon, the length of the window, or --rel-error, at which it may end; got both")
    try:
        result = run(model, options.seed, replicas=options.replicas,
                     **{} if options.rel_error is None else {"rel_error": options.rel_error},
                     warmup=options.warmup, horizon=options.horizon, max_events=options.max_events, progress=options.progress,
                     **flags.algorithm(options), **flags.checkpoint(options))
    except Interrupted as error:
        if error.partial is not None and options.out:
            write(options, error.partial)
            raise Kept(options, f"; the estimate reached is in {options.out}") from None
        raise Kept(options) from None
    finish(options, result, lambda: _steady(result), lambda plot: plot.stationary(result, _refined(model)))


def _refined(model: Any) -> Any:
    """The theory to draw beside the steady state of the supermarket model below its full load."""
    from .models.supermarket import Supermarket
    from .refined import refined

    return refined(model) if isinstance(model, Supermarket) and model.arrival_rate < 1 and model.levels <= 64 else None


def meanfield(options: argparse.Namespace) -> None:
    """`jaxq meanfield MODEL`."""
    from .refined import refined

    no_plot(options)
    result = refined(options.build(options))

    def text() -> str:
        levels = zip(result.fixed_point, result.V_tail, result.refined_tail, strict=True)
        rows = [[i + 1, *values] for i, values in enumerate(levels) if values[0] > 1e-12]
        return (tables.table(["i", "S_i", "V_i", f"S_i + V_i/{options.n}"], rows)
                + f"\nmean queue length {result.mean_queue_length:.10g} at n = infinity, V = {result.V:.10g}; "
                f"{result.refined_mean_queue_length:.10g} at n = {options.n} (error of order 1/n^2)"
                f"\ntruncation error {result.truncation_error:.1e}")

    finish(options, result, text)


def fit(options: argparse.Namespace) -> None:
    """`jaxq fit DATA ...`."""
    from .fit import fit_scaling

    data = options.data[0] if len(options.data) == 1 else options.data
    result = fit_scaling(data, d=options.d, prediction=options.prediction, fit_d=options.fit_d, profile=options.profile,
                         replacement=False if options.no_replacement else None, levels=options.levels, times=options.times)

    def text() -> str:
        rows = [[n, tables.pm(gap, error)] for n, gap, error in zip(result.n, result.gap, result.gap_stderr, strict=True)]
        lines = [f"lambda_n = 1 - beta n^-alpha, d = {result.d}, {'with' if result.replacement else 'without'} replacement, "
                 f"{result.prediction} prediction",
                 f"alpha {tables.pm(result.alpha, result.alpha_stderr)}", f"beta  {tables.pm(result.beta, result.beta_stderr)}",
                 f"correlation {result.correlation:.3f}; what the prediction leaves out may shift alpha by "
                 f"{result.alpha_model_error:.1g} and beta by {result.beta_model_error:.1g}",
                 f"chi-square {result.chi_square:.4g} with {result.dof} degrees of freedom, p = {result.p_value:.3g}"]
        for name in ("alpha", "beta"):
            interval = getattr(result, f"{name}_interval")
            if interval is not None:
                lines.append(f"{name}, 95 % by profile likelihood: {interval[0]:.6g} to {interval[1]:.6g}")
        if result.d_tried is not None and result.d_chi_square is not None:
            tried = zip(result.d_tried, result.d_chi_square, strict=True)
            lines.append("chi-square by d: " + ", ".join(f"{d}: {value:.4g}" for d, value in tried))
        free = f"without the power law, the slope of log eta_n is {tables.pm(result.free_slope, result.free_slope_stderr)}:"
        return "\n".join([*lines, free, tables.table(["n", "1 - lambda_n = beta/eta_n"], rows)])

    finish(options, result, text, lambda plot: plot.fit(result))


def _steady(result: Any) -> str:
    def line(name: str, measure: str, index: Any = ()) -> str:
        value, error = (getattr(result, measure + suffix) for suffix in ("", "_stderr"))
        return f"{name:24}{tables.pm(float(value[index] if index != () else value), float(error[index] if index != () else error))}"

    lines = [line("mean queue length", "mean_queue_length"), line("mean response time", "mean_response_time"),
             line("P(wait)", "p_wait"), line("P(block)", "p_block")]
    if result.busy is not None:
        lines += [line(f"busy, pool {k + 1}", "busy", k) for k in range(len(result.busy))]
    if result.messages_per_customer is not None:
        lines.append(line("messages per customer", "messages_per_customer"))
    used = result.tail.size
    lines += [line(f"S_{k + 1}", "tail", k) for k in range(min(used, _LEVELS))]
    if used > _LEVELS:
        lines.append(f"levels to S_{used} are in --json and --out")
    if result.step is not None:
        added = tables.pm(result.mean_queue_length_step_error, result.mean_queue_length_step_error_stderr)
        lines.append(f"steps of {result.step:g}: they add about {added} to the mean queue length")
    return "\n".join(lines) + (
        f"\nwarm-up {result.warmup:.4g}, window {result.horizon:.4g} time units, {result.replicas} replicas, "
        f"{result.events:.3g} events, {result.seconds + result.compile_seconds:.1f} s\n"
        f"stderr / mean of the mean queue length {result.rel_error:.2g}, "
        f"{'met' if result.rel_error <= result.rel_error_target else 'NOT the'} {result.rel_error_target:g} asked for; "
        f"control variates took a factor {result.control_gain:.3g} off its variance")
