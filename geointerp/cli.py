"""The command line: parses, calls, prints. Heavy imports wait until a verb runs, so that --help is quick."""

import contextlib
import dataclasses
import io
import json
import os
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from geointerp.errors import ConfigError, GeointerpError, one_line
from geointerp.options import Folder, NewFolder, Output, Plan

if TYPE_CHECKING:
    from geointerp.measures.analysis import Analysis
    from geointerp.training.checkpoint import Run


@dataclass(frozen=True, kw_only=True)
class RunVerb(Plan, Output):
    """Train, measure and report in one go."""

    out: Path
    """Folder to make, e.g. runs/mine."""
    force: bool = False
    """Replace a run that already lies there."""

    def __call__(self) -> dict[str, Any]:
        started = time.monotonic()
        run = _train(self, self.out, self.force, quiet=self.json)
        if not run.finished:
            raise Interrupted(run.folder)
        analysis = _measure(run, permutations=100, seed=0)
        page = _report(run, analysis)
        result = analysis.summary() | {"seconds": round(time.monotonic() - started, 2), "report": str(page)}
        if not self.json:
            _print_summary(result)
        return result


@dataclass(frozen=True, kw_only=True)
class TrainVerb(Plan, Output):
    """Train a model in a new run folder, or go on with an interrupted one."""

    out: NewFolder = None
    """Folder to make, e.g. runs/mine."""
    resume: NewFolder = None
    """Run folder to go on with; takes no other option but --json."""
    force: bool = False
    """Replace a run that already lies in --out."""

    def __call__(self) -> dict[str, Any]:
        started = time.monotonic()
        if (self.out is None) == (self.resume is None):
            raise ConfigError(
                "train needs exactly one of --out FOLDER (a new run) and --resume FOLDER (an interrupted one)"
            )
        if self.resume is not None:
            changed = [
                f"--{field.name.replace('_', '-')}"
                for field in dataclasses.fields(self)
                if field.name not in ("resume", "json") and getattr(self, field.name) != field.default
            ]
            if changed:
                raise ConfigError(
                    f"--resume goes on with the run's own settings, so {', '.join(changed)} cannot apply; leave it out"
                )
            from geointerp.training.run import resume_run

            run = resume_run(self.resume)
        else:
            assert self.out is not None
            run = _train(self, self.out, self.force, quiet=self.json)
        last = run.metrics[-1]
        if not run.finished:
            raise Interrupted(run.folder)
        result = {
            "run": str(run.folder),
            "steps": last["step"],
            "recall": last["recall"],
            "loss": last["loss"],
            "seconds": round(time.monotonic() - started, 2),
        }
        if not self.json:
            reached = "recall 1" if last["recall"] == 1.0 else f"recall 1 was NOT reached: recall {last['recall']:.4f}"
            print(
                f"{reached} after {last['step']} steps, loss {last['loss']:.3g}; next: geointerp measure {run.folder}"
            )
        return result


@dataclass(frozen=True, kw_only=True)
class MeasureVerb(Output):
    """Measure how a trained run stores its facts; writes analysis.json."""

    run: Folder
    """Run folder."""
    permutations: int = 100
    """Draws of the permutation null."""
    seed: int = 0
    """Of every draw that measures make."""

    def __call__(self) -> dict[str, Any]:
        from geointerp.training.checkpoint import load_run

        started = time.monotonic()
        analysis = _measure(load_run(self.run), permutations=self.permutations, seed=self.seed)
        result = analysis.summary() | {
            "seconds": round(time.monotonic() - started, 2),
            "analysis": str(self.run / "analysis.json"),
        }
        if not self.json:
            _print_summary(result)
        return result


@dataclass(frozen=True, kw_only=True)
class ReportVerb(Output):
    """Write the interactive page of a measured run; works offline."""

    run: Folder
    """Run folder."""
    open: bool = False
    """Open the page in the browser."""

    def __call__(self) -> dict[str, Any]:
        from geointerp.measures.analysis import read_analysis
        from geointerp.training.checkpoint import load_run

        page = _report(load_run(self.run), read_analysis(self.run))
        if self.open:
            import webbrowser

            webbrowser.open(page.resolve().as_uri())
        if not self.json:
            print(page)
        return {"report": str(page), "bytes": page.stat().st_size}


@dataclass(frozen=True, kw_only=True)
class InfoVerb(Output):
    """Say what lies in a run folder."""

    run: Folder
    """Run folder."""

    def __call__(self) -> dict[str, Any]:
        from geointerp.measures.analysis import read_analysis
        from geointerp.training.checkpoint import load_run, read_config

        _, content = read_config(self.run)
        run = load_run(self.run)
        measured = (self.run / "analysis.json").is_file()
        result = {
            "run": str(self.run),
            "facts": run.facts.describe(),
            "parameters": run.model.n_parameters,
            "finished": run.finished,
            "last": run.metrics[-1] if run.metrics else None,
            "summary": read_analysis(self.run).summary() if measured else None,
            "report": str(self.run / "report.html") if (self.run / "report.html").is_file() else None,
        } | {key: content[key] for key in ("schema_version", "versions", "threads", "config")}
        if not self.json:
            for key, value in result.items():
                nested = isinstance(value, dict)
                print(f"{key}: {json.dumps(value, indent=2) if nested else value}")
        return result


class Interrupted(GeointerpError):
    """Ctrl-C during training, after the checkpoint was written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"interrupted; nothing is lost, go on with: geointerp train --resume {folder}")


VERBS = {"run": RunVerb, "train": TrainVerb, "measure": MeasureVerb, "report": ReportVerb, "info": InfoVerb}


def _train(options: Plan, out: Path, force: bool, *, quiet: bool) -> "Run":
    from geointerp.training.checkpoint import remove_run
    from geointerp.training.run import train_run

    config, facts = options.resolve()
    if not quiet:
        print(facts.describe(), flush=True)
    if force:
        remove_run(out)
    return train_run(out, config, facts)


def _measure(run: "Run", *, permutations: int, seed: int) -> "Analysis":
    from tqdm import tqdm

    from geointerp.measures.analysis import MEASURES, measure, write_analysis

    with tqdm(desc="measuring", total=len(MEASURES), disable=None, delay=1) as bar:

        def on_measure(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        try:
            analysis = measure(run.model, run.facts, permutations=permutations, seed=seed, on_measure=on_measure)
        except KeyboardInterrupt:
            raise GeointerpError(
                f"interrupted; the trained model is whole, go on with: geointerp measure {run.folder}"
            ) from None
    write_analysis(run.folder, analysis)
    return analysis


def _report(run: "Run", analysis: "Analysis") -> Path:
    from tqdm import tqdm

    with tqdm(desc="writing the report", total=2, disable=None, delay=1) as bar:
        from geointerp.report.page import write_report

        bar.update()  # the drawing library is loaded
        page = write_report(run, analysis)
        bar.update()
    return page


def _print_summary(result: dict[str, Any]) -> None:
    def show(value: float | None) -> str:
        return "none" if value is None else f"{value:.3f}"

    r = result
    if r["recall"] != 1.0:
        print(
            f"recall 1 was NOT reached: recall {r['recall']:.4f}; train longer (--steps) or wider (--d-model, --d-mlp)"
        )
    print(f"recall          {show(r['recall'])}   chance {r['chance']:.4f}")
    print(
        f"R2              {show(r['r2_leave_one_out'])}   leave-one-out; null {show(r['r2_null'])}; "
        f"in-sample {show(r['r2_in_sample'])}, null {show(r['r2_in_sample_null'])}"
        + (" (MEANINGLESS: any rows fit)" if r["saturated"] else "")
    )
    print(f"selectivity     {show(r['selectivity'])}   random displacement {show(r['selectivity_null'])}")
    print(f"isolation       {show(r['isolation'])}   random displacement {show(r['isolation_null'])}")
    print(
        f"transfer        {show(r['transfer'])}   shuffled maps {show(r['transfer_shuffled'])}, "
        f"chance {r['chance']:.4f}"
    )
    print(f"seconds         {r['seconds']:.1f}")
    for key in ("report", "analysis"):
        if key in r:
            print(f"{key:<15} {r[key]}")


def main(arguments: list[str] | None = None) -> int:
    """Run one verb.

    Returns:
        0 done, 1 failed, 2 bad usage. Errors are one line on standard error (and ``{"error": ...}`` with --json).
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(version("geointerp"))
        return 0
    as_json = "--json" in arguments
    try:
        result = _parse(arguments)()
        if as_json:
            print(json.dumps(result, allow_nan=False))
        sys.stdout.flush()
    except GeointerpError as error:
        return _fail(str(error), as_json, 2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        return _fail("interrupted", as_json, 1)
    except BrokenPipeError:  # the reader of our output, such as head, has gone; at exit Python would flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # rights and disks, wherever a file is touched
        what = f"{error.filename}: {error.strerror}" if error.filename else one_line(error)
        return _fail(f"{what}; check the path, its rights and the space on its disk", as_json, 1)
    return 0


def _parse(arguments: list[str]) -> "RunVerb | TrainVerb | MeasureVerb | ReportVerb | InfoVerb":
    """The verb with its options.

    Raises:
        ConfigError: what tyro says of unusable arguments, its frame taken off and put on one line.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.extras.subcommand_cli_from_dict(
                VERBS,
                args=arguments,
                prog="geointerp",
                description="Train, measure and show how transformers remember facts.",
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [line.strip("╭╮╰╯│─ ") for line in said.getvalue().splitlines()]
        text = " ".join(line for line in lines[1:] if line)  # the first line is a title
        for cut in ("Argument helptext:", "For full helptext"):
            text = text.partition(cut)[0].strip()
        raise ConfigError(f"{text.rstrip('. ') or 'unusable arguments'}; see geointerp --help") from None


def _fail(message: str, as_json: bool, code: int) -> int:
    print(f"geointerp: {' '.join(message.split())}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message}))
    return code


if __name__ == "__main__":
    sys.exit(main())
