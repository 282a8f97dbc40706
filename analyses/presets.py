"""What the presets reach: five seeds each, and the two-layer controlled model; the bands that the README states.

    python -m analyses.presets [--out runs/presets] [--readme]

Trains and measures every variant over seeds 0-4 in run folders under --out (each with its ``analysis.json``), as many
at a time as there are cores, one torch thread each. Writes ``analyses/results/presets.json``; with --readme also the
table of ranges between the ``bands`` marks of README.md. A band is the range over the five seeds, widened by 0.05 on
either side and kept within what the quantity can be: other machines and thread counts round differently, and the test
that holds the bands runs elsewhere. Presets were chosen on seeds 100 and up; see LOG.md.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

SEEDS = (0, 1, 2, 3, 4)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "quick": ("quick", {}),
    "controlled": ("controlled", {}),
    "controlled, two layers": ("controlled", {"n_layers": 2}),
    "controlled, uniform attention": ("controlled", {"attention": "uniform"}),
}
BANDS = {  # quantity of the summary: the values it can take
    "recall": (0.0, 1.0),
    "r2_leave_one_out": (float("-inf"), 1.0),
    "r2_null": (float("-inf"), 1.0),
    "selectivity": (-1.0, 1.0),
    "selectivity_null": (-1.0, 1.0),
    "isolation": (-1.0, 1.0),
    "transfer": (0.0, 1.0),
    "transfer_shuffled": (0.0, 1.0),
}
EXACT = ("recall",)  # held as it is, without widening
RESULTS = Path(__file__).parent / "results" / "presets.json"
README = Path(__file__).parent.parent / "README.md"
MARKS = ("<!-- bands -->", "<!-- /bands -->")


def run_one(variant: str, seed: int, out: Path) -> dict[str, Any]:
    """Train and measure one variant in its run folder; returns the summary with the seconds it took."""
    import torch

    from geointerp import measure, plan, train_run, write_analysis
    from geointerp.training.checkpoint import remove_run

    torch.set_num_threads(1)
    preset, changes = VARIANTS[variant]
    config, facts = plan(preset, seed=seed, changes=changes)
    folder = out / f"{variant.replace(', ', '-').replace(' ', '-')}-seed{seed}"
    remove_run(folder)
    started = time.monotonic()
    run = train_run(folder, config, facts)
    analysis = measure(run.model, facts)
    write_analysis(folder, analysis)
    return analysis.summary() | {"seed": seed, "seconds": round(time.monotonic() - started, 1)}


def bands(summaries: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Range of each quantity over the seeds, widened as the module says."""
    result = {}
    for name, (least, most) in BANDS.items():
        values = [s[name] for s in summaries if s[name] is not None]
        if values:
            width = 0.0 if name in EXACT else 0.05
            result[name] = (max(least, min(values) - width), min(most, max(values) + width))
    return result


def table(results: dict[str, Any]) -> str:
    """What was measured, as a Markdown table: the range over the seeds."""
    names = list(BANDS)
    lines = [
        "| variant | " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for variant, entry in results["variants"].items():
        cells = []
        for name in names:
            values = [seed[name] for seed in entry["seeds"]]
            low, high = (f"{value:.3f}" for value in (min(values), max(values)))
            cells.append(low if low == high else f"{low} .. {high}")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/presets"))
    parser.add_argument("--readme", action="store_true", help="write the table into README.md")
    options = parser.parse_args()
    started = time.monotonic()
    jobs = [(variant, seed) for variant in VARIANTS for seed in SEEDS]
    found: list[dict[str, Any]] = Parallel(n_jobs=-1, verbose=5)(  # pyright: ignore[reportAssignmentType] - one a job, in order
        delayed(run_one)(variant, seed, options.out) for variant, seed in jobs
    )
    by_variant = {v: [f for (name, _), f in zip(jobs, found, strict=True) if name == v] for v in VARIANTS}
    from importlib.metadata import version

    results = {
        "command": "python -m analyses.presets",
        "versions": {"python": platform.python_version()} | {n: version(n) for n in ("geointerp", "torch")},
        "seconds": round(time.monotonic() - started, 1),
        "variants": {v: {"bands": bands(s), "seeds": s} for v, s in by_variant.items()},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(table(results))
    if options.readme:
        text = README.read_text(encoding="utf-8")
        head, rest = text.split(MARKS[0])
        README.write_text(f"{head}{MARKS[0]}\n{table(results)}\n{MARKS[1]}{rest.split(MARKS[1])[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
