"""``companion campaign``: many simulated flights with drawn numbers."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from companion.core.command_line import (
    INTERRUPTED,
    REFUSED,
    ConfigFile,
    OutputFile,
    check_output_folder,
    end_with,
    one_line_errors,
    os_error_line,
)
from companion.core.config_files import ConfigKind
from companion.core.errors import OutputError, UserError
from companion.core.text import plain

if TYPE_CHECKING:
    from rich.console import Console

    from sitl.campaign.flights import CampaignPlan, Flight
    from sitl.campaign.fly import Row
    from sitl.campaign.store import Store

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=ConfigFile(ConfigKind.CAMPAIGN))
@click.option("--out", type=FILE, default=None, help="Folder for the results; empty or absent, except with --resume.")
@click.option("--jobs", type=click.IntRange(1, 1024), default=None, help="Flights at a time. Default: the cores.")
@click.option("--scheduler", default=None, metavar="ADDRESS", help="Fly on a Dask cluster: tcp://HOST:PORT.")
@click.option("--resume", is_flag=True, help="Go on with the campaign in the folder: fly only what is missing.")
@click.option(
    "--again",
    type=click.Choice(["crashed"]),
    default=None,
    help="With --resume: fly the crashed flights again, too, as those that the machine has ended.",
)
@click.option(
    "--report", is_flag=True, help="Write table and report of the folder again, by this version; fly nothing."
)
@click.option(
    "--logs", type=FILE, default=None, help="Write a log of every flight into this folder, where it is flown."
)
@click.option("--check", is_flag=True, help="Draw and check all flights, and fly none.")
@click.option("--only", type=click.IntRange(1), default=None, metavar="N", help="Fly only flight N, in this process.")
@click.option("--log", "log_file", type=OutputFile(), default=None, help="With --only: write the flight log here.")
@click.option(
    "--json",
    "json_file",
    type=OutputFile(),
    default=None,
    help="With --only: write the result here; -: standard output.",
)
@one_line_errors
def campaign(
    file: Path,
    out: Path | None,
    jobs: int | None,
    scheduler: str | None,
    resume: bool,
    again: str | None,
    report: bool,
    logs: Path | None,
    check: bool,
    only: int | None,
    log_file: Path | None,
    json_file: Path | None,
) -> None:
    """Fly the flights of a campaign FILE, with numbers drawn from its distributions; writes a table and a report.

    The same file gives the same flights, whatever the number of processes or machines.
    """
    from sitl.campaign.flights import plan_campaign
    from sitl.campaign.store import Store

    if only is None and (log_file is not None or json_file is not None):
        raise UserError(
            f"--{'log' if log_file is not None else 'json'}: only with --only N; --logs FOLDER logs all flights"
        )
    if again is not None and not resume:
        raise UserError("--again: only with --resume")
    if only is None and not check and out is None:
        raise UserError("--out: missing: the folder for the results")
    plan = plan_campaign(file, only)
    if check:
        click.echo(f"{plan.campaign.name}: {len(plan.flights)} flights, all of them can be flown")
        return
    if only is not None:
        sys.exit(_fly_only(plan, only, log_file, json_file))
    assert out is not None
    if report:
        _write_results(plan, Store.of_any_version(out, plan))
        return
    _fly_all(plan, out, jobs, scheduler, resume, again, logs)


def _fly_only(plan: "CampaignPlan", only: int, log_file: Path | None, json_file: Path | None) -> int:
    from companion.runtime.fly import ending_line
    from sitl.campaign.fly import fly_flight
    from sitl.campaign.show import write_result
    from sitl.simulate import FlightProgress, result_table

    if not plan.flights:
        raise UserError(f"--only {only}: the campaign has {plan.campaign.size} flights")
    if log_file is not None and log_file.exists():
        raise OutputError(f"{log_file}: log exists already; logs are never overwritten")
    (flight,) = plan.flights
    progress = FlightProgress()
    try:
        flown, row = fly_flight(flight, log_file, progress)
    except KeyboardInterrupt:
        end_with("interrupted", INTERRUPTED)
    finally:
        progress.end()
    console = _console(stderr=write_result(row, json_file))
    console.print(result_table(flown, log_file))
    for field, value in flight.fields.items():
        console.print(plain(f"{field} = {value:.6g}" if isinstance(value, float) else f"{field} = {value}"))
    console.print(plain(ending_line(flown.status)), highlight=False, soft_wrap=True)
    return 0 if flown.result["completed"] else 1


def _fly_all(
    plan: "CampaignPlan",
    out: Path,
    jobs: int | None,
    scheduler: str | None,
    resume: bool,
    again: str | None,
    logs: Path | None,
) -> None:
    from sitl.campaign.fly import Outcome
    from sitl.campaign.store import Store

    if jobs is not None and scheduler is not None:
        raise UserError("--jobs: not with --scheduler, whose workers have their own number of threads")
    _require_packages(scheduler is not None)
    if logs is not None and scheduler is None:  # else it is a folder of the workers
        check_output_folder(logs)
    store = Store(out, plan, resume)
    console = _console(stderr=True)
    for path in store.unreadable:
        console.print(plain(f"{path}: cannot be read; the flight is flown again"), highlight=False, soft_wrap=True)
    if again is not None:
        console.print(plain(f"{store.fly_again(Outcome(again))} {again} flights are flown again"), highlight=False)
    missing = [_with_log(flight, logs) for flight in store.missing]
    reason, status = "", 0
    try:
        if missing:
            _prepare(missing, scheduler)
            _fly_missing(_rows(missing, jobs, scheduler), store, len(plan.flights), console)
    except KeyboardInterrupt:
        reason, status = "interrupted", INTERRUPTED
    except (UserError, OSError) as error:
        if not store.rows:
            raise
        reason, status = os_error_line(error) if isinstance(error, OSError) else str(error), REFUSED
    finally:
        _write_results(plan, store)
        store.close()
    if reason:
        end_with(f"{reason}: {len(store.rows)} of {len(plan.flights)} flights flown; go on with --resume", status)
    sys.exit(1 if {row["outcome"] for row in store.rows.values()} & {"failed", "crashed"} else 0)


def _require_packages(cluster: bool) -> None:
    """Raise ImportError, which becomes one line, before the first flight and not after the last one."""
    import jinja2  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    if cluster:
        import distributed  # noqa: F401


def _with_log(flight: "Flight", logs: Path | None) -> "Flight":
    import msgspec

    if logs is None:
        return flight
    return msgspec.structs.replace(flight, log=str(logs.absolute() / f"{flight.number:05d}.mcap"))


def _prepare(flights: "list[Flight]", scheduler: str | None) -> None:
    """Build what the flights need, once and not in every process; on a cluster each worker does so for itself."""
    import tempfile

    from sitl.baselines.stacks import prepare
    from sitl.campaign.flights import solver_vehicles
    from sitl.kernels import build_missing

    different = solver_vehicles(flights)
    if scheduler is not None:
        return
    for flight in different:
        with tempfile.TemporaryDirectory(prefix="companion-campaign-") as folder:
            loaded = flight.loaded(Path(folder))
            build_missing(loaded.vehicle_path, lambda line: click.echo(line, err=True))
            for stack in {flight.stack for flight in flights}:
                prepare(stack, loaded.vehicle)


def _rows(flights: "list[Flight]", jobs: int | None, scheduler: str | None) -> "Iterator[Row]":
    if scheduler is not None:
        from sitl.campaign.cluster import fly_on_cluster

        return fly_on_cluster(flights, scheduler)
    from sitl.campaign.run import cores, fly_here

    return fly_here(flights, jobs or cores())


def _fly_missing(rows: "Iterator[Row]", store: "Store", total: int, console: "Console") -> None:
    """Keep every row as it comes, and show how far the campaign is."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    began_s, before = time.monotonic(), len(store.rows)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("flights", total=total, completed=before, left="")
        for row in rows:
            store.add(row)
            flown = len(store.rows) - before
            left_s = (time.monotonic() - began_s) / flown * (total - len(store.rows))
            outcomes = Counter(r["outcome"] for r in store.rows.values())
            shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            bar.update(task, completed=len(store.rows), left=f"{_duration(left_s)} left; {shown}")
            line = f"{len(store.rows):>4}/{total}  {_line(row)}; {_duration(left_s)} left"
            console.print(plain(line), highlight=False, soft_wrap=True)


def _line(row: "Row") -> str:
    """One flight in one line."""
    error = row["result"].get("position_rms_m")
    shown = row["cause"] if error is None or row["cause"] else ""
    hold = "" if error is None else f" hold {100 * error:.1f} cm RMS"
    which = f"{row['scenario']} {row['sensors']} {row['stack']} seed {row['seed']}"
    return f"flight {row['flight']} {which}: {row['outcome']}{hold}{f' ({shown})' if shown else ''}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _write_results(plan: "CampaignPlan", store: "Store") -> None:
    from sitl.campaign.report import summary_lines, write_campaign_report
    from sitl.campaign.store import REPORT, RESULTS
    from sitl.campaign.table import write_parquet

    rows = store.ordered()
    if not rows:
        return
    write_parquet(rows, store.folder / RESULTS)
    write_campaign_report(plan, rows, store.folder / REPORT)
    for line in summary_lines(rows):
        click.echo(line)
    click.echo(str(store.folder / RESULTS))
    click.echo(str(store.folder / REPORT))


def _console(stderr: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, markup=False)
