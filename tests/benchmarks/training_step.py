"""One training step against the same step through TransformerLens's native bridge, paired in one process.

    python -m tests.benchmarks.training_step [--pairs 30]

N=1024 subjects, R=4 shared bijections, d_model 64, d_mlp 256, one layer, one head, AdamW, all 4096 facts a step, loss
at the answer position. Ours: uniform attention (and, for the record, learned and none). The bridge: what
``boot_native`` builds at these sizes. The two take turns, so that a noisy machine disturbs both; the figure is the
median of the ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from geointerp import FactTable, FactTransformer, Trainer, plan


def our_step(attention: str) -> tuple[Callable[[], float], FactTransformer, FactTable]:
    config, facts = plan(
        "controlled", changes={"attention": attention, "batch_size": 0, "row_noise": 0.0, "warmup_steps": 0}
    )
    model = FactTransformer(config.model)
    return Trainer(model, facts, config.training).advance, model, facts


def bridge_step(model: FactTransformer, facts: FactTable) -> Callable[[], float]:
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_native(model.cfg)  # pyright: ignore[reportAttributeAccessIssue] - attached at import
    optimizer = torch.optim.AdamW(bridge.parameters(), lr=3e-3, weight_decay=0.1, fused=True)
    relations, subjects = facts.fact_ids
    tokens, answers = model.to_tokens(subjects, relations), facts.answers[relations, subjects]

    def step() -> float:
        loss = F.cross_entropy(bridge(tokens)[:, -1], answers)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def seconds(step: Callable[[], float]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def paired(pairs: int, attention: str) -> dict[str, float]:
    """Median seconds of both and the median of the ratios bridge / ours over ``pairs`` turns, after a warm-up."""
    ours, model, facts = our_step(attention)
    theirs = bridge_step(model, facts)
    for _ in range(3):
        ours()
        theirs()
    times = [(seconds(ours), seconds(theirs)) for _ in range(pairs)]
    return {
        "ours_ms": 1e3 * statistics.median(t[0] for t in times),
        "bridge_ms": 1e3 * statistics.median(t[1] for t in times),
        "ratio": statistics.median(t[1] / t[0] for t in times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    pairs = parser.parse_args().pairs
    print(f"{torch.get_num_threads()} threads, {pairs} pairs, torch {torch.__version__}")
    for attention in ("uniform", "learned", "none"):
        result = paired(pairs, attention)
        print(
            f"attention={attention:8} ours {result['ours_ms']:.1f} ms, native bridge {result['bridge_ms']:.1f} ms: "
            f"{result['ratio']:.2f}x faster"
        )


if __name__ == "__main__":
    main()
