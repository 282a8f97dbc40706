"""Trainer: schedule, optimizer, batches, noise, stopping and resuming, each against what it should be by hand."""

import copy
import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from geointerp import FactTable, FactTransformer, RunConfig, TrainConfig, Trainer, random_bijections, read_facts
from geointerp.errors import FactsError, TrainingError

Tiny = Callable[..., tuple[RunConfig, FactTable]]
Weights = Callable[[FactTransformer], dict[str, Tensor]]


def trainer(tiny: Tiny, **changes: Any) -> Trainer:
    config, facts = tiny(**changes)
    return Trainer(FactTransformer(config.model), facts, config.training)


class Asked:
    """What the model is asked, read at its first hook: subjects, relations, and the noise on the rows."""

    def __init__(self, model: FactTransformer) -> None:
        self.model = model
        self.facts: list[list[tuple[int, int]]] = []
        self.noise: list[Tensor] = []
        model.add_perma_hook("hook_embed", self)

    def __call__(self, tensor: Tensor, *, hook: object) -> None:
        rows, table = tensor[:, 0].detach(), self.model.subject_rows
        subjects = torch.cdist(rows, table).argmin(1)
        same = (tensor[:, 1, None] == self.model.embed.W_relation).all(-1)
        assert bool((same.sum(1) == 1).all())
        self.facts.append(list(zip(same.long().argmax(1).tolist(), subjects.tolist(), strict=True)))
        self.noise.append(rows - table[subjects])


# ---- schedule and optimizer ----


def test_learning_rate_by_hand(tiny: Tiny) -> None:
    of = trainer(tiny, steps=8, warmup_steps=4, learning_rate=0.8).learning_rate
    root = math.sqrt(2) / 2  # cos(pi / 4)
    expected = {0: 0.2, 2: 0.6 * (1 + root) / 2, 4: 0.4, 6: 0.8 * (1 - root) / 2, 8: 0.0}
    for step, value in expected.items():
        assert of(step) == pytest.approx(value, abs=1e-12)
    assert trainer(tiny, steps=8, warmup_steps=0, learning_rate=0.8).learning_rate(0) == 0.8
    of = trainer(tiny, steps=1000, warmup_steps=10, learning_rate=0.8).learning_rate
    rates = [of(step) for step in range(1001)]
    assert rates.index(max(rates)) == 9
    assert max(rates) == pytest.approx(0.8, rel=1e-3)


def test_the_first_step_of_adamw_by_hand(tiny: Tiny, weights: Weights) -> None:
    """The moments are then (1 - b1) g and (1 - b2) g^2, so the corrected step is lr g / (|g| + eps)."""
    t = trainer(tiny, batch_size=0, row_noise=0.0, weight_decay=0.5, attention="learned", normalization="LN")
    with torch.no_grad():
        for value in t.model.parameters():  # biases too: decay would show on them
            value.add_(0.1)
    before = weights(t.model)
    relation, subject = t.facts.fact_ids
    logits = t.model(t.model.to_tokens(subject, relation))[:, -1]
    F.cross_entropy(logits, t.facts.answers[relation, subject]).backward()
    gradients = {name: p.grad.clone() for name, p in t.model.named_parameters() if p.grad is not None}
    t.advance()
    rate = 0.02 / 3
    matrices = {"embed.W_subject", "embed.W_relation", "unembed.W_U"} | {
        f"blocks.0.{name}" for name in ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out")
    }
    assert matrices < before.keys()
    for name, after in t.model.named_parameters():
        g, old = gradients[name], before[name]
        kept = old * (1 - rate * 0.5) if name in matrices else old
        sure = g.abs() > 1e-5  # elsewhere rounding decides the sign
        expected = kept - rate * g / (g.abs() + 1e-8)
        torch.testing.assert_close(after[sure], expected[sure], atol=1e-5, rtol=1e-4, msg=name)
        assert bool(sure.any()) or name.endswith(("b_Q", "b_K")), name


def test_ten_steps_are_those_of_torchs_adamw(tiny: Tiny) -> None:
    t = trainer(tiny, batch_size=0, row_noise=0.0, weight_decay=0.3, beta2=0.9, normalization="RMS", positions=True)
    model = copy.deepcopy(t.model)
    plain = [p for name, p in model.named_parameters() if p.ndim == 1]
    decayed = [p for name, p in model.named_parameters() if p.ndim > 1 and not name.endswith("b_V")]
    biases = [p for name, p in model.named_parameters() if name.endswith("b_V")]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.3}, {"params": plain + biases, "weight_decay": 0.0}],
        betas=(0.9, 0.9),
        fused=False,
        foreach=False,
    )
    relation, subject = t.facts.fact_ids
    tokens, answers = model.to_tokens(subject, relation), t.facts.answers[relation, subject]
    for step in range(10):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * min(1, (step + 1) / 3) * (1 + math.cos(math.pi * step / 24)) / 2
        loss = F.cross_entropy(model(tokens)[:, -1], answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert t.advance() == pytest.approx(float(loss.detach()), rel=1e-4)
    ours = dict(t.model.named_parameters())
    for name, theirs in model.named_parameters():
        torch.testing.assert_close(ours[name], theirs, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("tie_unembed", [True, False])
@pytest.mark.parametrize("freeze_unembed", [True, False])
@pytest.mark.parametrize("freeze_subjects", [True, False])
def test_frozen_weights_stay_bit_equal_and_all_others_move(
    tiny: Tiny, weights: Weights, freeze_subjects: bool, freeze_unembed: bool, tie_unembed: bool
) -> None:
    t = trainer(tiny, freeze_subjects=freeze_subjects, freeze_unembed=freeze_unembed, tie_unembed=tie_unembed)
    before = weights(t.model)
    for _ in range(5):
        t.advance()
    still = {name for name, value in t.model.named_parameters() if torch.equal(value, before[name])}
    attributes = "embed.W_attribute" if tie_unembed else "unembed.W_U"
    assert still == {n for n, on in (("embed.W_subject", freeze_subjects), (attributes, freeze_unembed)) if on}


# ---- batches and noise ----


@pytest.mark.parametrize(("batch_size", "batches"), [(8, 3), (7, 4), (15, 2), (20, 1)])
def test_an_epoch_asks_no_fact_twice(tiny: Tiny, batch_size: int, batches: int) -> None:
    t = trainer(tiny, batch_size=batch_size, row_noise=0.0)
    asked = Asked(t.model)
    for _ in range(2 * batches):
        t.advance()
    assert {len(batch) for batch in asked.facts} == {batch_size}
    epochs = [list(chain(*asked.facts[:batches])), list(chain(*asked.facts[batches:]))]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == batches * batch_size
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("batch_size", [0, 30, 31])
def test_a_full_batch_asks_every_fact_every_step(tiny: Tiny, batch_size: int) -> None:
    t = trainer(tiny, batch_size=batch_size)
    asked = Asked(t.model)
    for _ in range(3):
        t.advance()
    every = sorted((r, s) for r in range(3) for s in range(10))
    assert [sorted(batch) for batch in asked.facts] == [every] * 3


def test_absent_facts_are_never_asked(tiny: Tiny) -> None:
    answers = random_bijections(10, 3, seed=0).answers
    answers[0, 3:] = -1
    answers[2] = -1
    facts = FactTable(answers=answers, n_attributes=10)
    t = trainer(tiny, facts=facts, batch_size=4, row_noise=0.0)
    asked = Asked(t.model)
    for _ in range(9):
        t.advance()
    present = {(0, 0), (0, 1), (0, 2)} | {(1, s) for s in range(10)}
    assert set(chain(*asked.facts)) == present
    t.evaluate()
    assert sorted(asked.facts[-1]) == sorted(present)


def test_batches_depend_on_the_seed_and_the_step_alone(tiny: Tiny) -> None:
    def batches(**changes: Any) -> list[list[tuple[int, int]]]:
        t = trainer(tiny, row_noise=0.0, **changes)
        asked = Asked(t.model)
        for _ in range(4):
            t.advance()
        return asked.facts

    assert batches() == batches(d_mlp=32, learning_rate=1e-3, init_seed=7)
    assert batches() != batches(seed=1)


def test_noise_has_the_scale_that_was_asked_and_only_in_training(tiny: Tiny) -> None:
    facts = random_bijections(500, 2, seed=0)
    t = trainer(tiny, facts=facts, batch_size=0, row_noise=0.1, d_model=32)
    sd = float(t.model.subject_rows.std())
    asked = Asked(t.model)
    t.evaluate()
    assert not asked.noise[0].any()
    t.advance()
    assert float(asked.noise[1].std()) == pytest.approx(0.1 * sd, rel=0.03)
    assert abs(float(asked.noise[1].mean())) < 0.003 * sd
    first, second = asked.noise[1][:500], asked.noise[1][500:]  # the same subjects, asked another relation
    assert abs(float(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1])) < 0.05
    t.advance()
    assert not torch.allclose(asked.noise[2], asked.noise[1], atol=0.01 * sd)


def test_noise_changes_training_and_not_evaluation(tiny: Tiny, weights: Weights) -> None:
    noisy, plain = trainer(tiny, row_noise=0.5), trainer(tiny, row_noise=0.0)
    assert noisy.evaluate().loss == plain.evaluate().loss
    noisy.advance()
    plain.advance()
    assert noisy.batch_loss != plain.batch_loss
    assert not torch.equal(weights(noisy.model)["unembed.W_U"], weights(plain.model)["unembed.W_U"])


# ---- evaluation and stopping ----


def test_an_evaluation_by_hand(tiny: Tiny) -> None:
    answers = random_bijections(10, 3, seed=0).answers
    answers[1, :4] = -1
    answers[2] = -1
    t = trainer(tiny, facts=FactTable(answers=answers, n_attributes=10))
    for _ in range(10):
        t.advance()
    result = t.evaluate()
    losses, right = [], {0: [], 1: []}
    with torch.no_grad():
        for r, s in ((r, s) for r in (0, 1) for s in range(10) if answers[r, s] >= 0):
            logits = t.model(torch.tensor([[s, 10 + r]]))[0, -1]
            losses.append(float(-logits.log_softmax(0)[answers[r, s]]))
            right[r].append(int(logits.argmax()) == int(answers[r, s]))
    assert len(losses) == 16
    assert result.loss == pytest.approx(sum(losses) / 16, rel=1e-5)
    assert result.recall == (sum(right[0]) + sum(right[1])) / 16
    assert 0 < result.recall < 1
    assert result.recall_by_relation[:2] == (sum(right[0]) / 10, sum(right[1]) / 6)
    assert math.isnan(result.recall_by_relation[2])
    assert (result.step, result.batch_loss) == (10, t.batch_loss)
    assert result.to_dict()["recall_by_relation"][2] is None
    assert trainer(tiny).evaluate().to_dict()["batch_loss"] is None


EASY = {"steps": 300, "batch_size": 0, "row_noise": 0.0, "learning_rate": 0.05, "weight_decay": 0.0}


def test_training_stops_at_recall_one_and_the_target_loss(tiny: Tiny) -> None:
    t = trainer(tiny, **EASY, target_loss=0.5, eval_every=7)
    seen = []
    last = t.run(seen.append)
    assert last.step < 300
    assert last.step % 7 == 0
    assert [e.step for e in seen] == list(range(7, last.step + 1, 7))
    assert seen[-1] == last
    assert [e.recall == 1 and e.loss <= 0.5 for e in seen] == [False] * (len(seen) - 1) + [True]
    assert t.finished == f"recall 1 and loss {last.loss:.3g} <= 0.5 after {last.step} steps"
    assert not t.model.training


def test_without_a_target_training_goes_on_to_the_last_step(tiny: Tiny) -> None:
    t = trainer(tiny, **EASY)
    last = t.run()
    assert (last.step, last.recall) == (300, 1.0)
    assert t.finished == "recall 1 after all 300 steps"


def test_recall_one_is_asked_for_even_where_the_loss_is_low(tiny: Tiny) -> None:
    answers = torch.zeros(2, 10, dtype=torch.int64)
    answers[0, 0] = 1  # a single exception among 20: the loss is low before it is learnt
    facts = FactTable(answers=answers, n_attributes=2)
    t = trainer(tiny, facts=facts, **(EASY | {"learning_rate": 0.01}), target_loss=0.4, eval_every=1)
    seen = []
    t.run(seen.append)
    assert any(e.loss <= 0.4 and e.recall < 1 for e in seen)
    assert seen[-1].recall == 1


def test_the_step_limit_says_that_recall_was_not_reached(tiny: Tiny) -> None:
    t = trainer(tiny, steps=3)
    last = t.run()
    assert last.step == 3
    assert last.recall < 1
    assert t.finished == f"recall 1 was NOT reached (recall {last.recall:.4f}) after all 3 steps"


def test_a_real_table_with_absent_facts_trains(tiny: Tiny) -> None:
    countries = read_facts("countries")
    assert countries.n_facts < countries.n_subjects * countries.n_relations
    config, facts = tiny(facts=countries, steps=30, batch_size=256, d_model=32, learning_rate=0.03, row_noise=0.1)
    t = Trainer(FactTransformer(config.model), facts, config.training)
    before, after = t.evaluate(), t.run()
    assert after.loss < before.loss - 0.5
    assert all(0 <= share <= 1 for share in after.recall_by_relation)


def test_a_table_of_other_sizes_is_refused_before_the_first_step(tiny: Tiny) -> None:  # cases.md 12
    config, _ = tiny()
    with pytest.raises(FactsError, match="the model has 10 subjects"):
        Trainer(FactTransformer(config.model), random_bijections(11, 3, seed=0), config.training)


# ---- divergence ----


def bits(weights: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: value.flatten().view(torch.int32).tolist() for name, value in weights.items()}


def test_divergence_stops_with_step_and_learning_rate(tiny: Tiny, weights: Weights) -> None:
    t = trainer(tiny, learning_rate=1e30, warmup_steps=0)
    before: list[dict[str, list[int]]] = []  # the weights before each step

    def note(step: int) -> None:
        before.append(bits(weights(t.model)))

    note(0)
    with pytest.raises(TrainingError) as caught:
        t.run(on_step=note)
    step = len(before) - 1
    assert 0 < step < 24
    rate = 1e30 * (1 + math.cos(math.pi * step / 24)) / 2
    text = str(caught.value)
    assert f"at step {step} with learning rate {rate:.3g}" in text
    assert "lower --learning-rate (now 1e+30) or raise --warmup-steps" in text
    assert t.step == step
    assert bits(weights(t.model)) == before[-1]


def test_a_weight_that_is_no_number_stops_the_first_step(tiny: Tiny, weights: Weights) -> None:
    t = trainer(tiny)
    with torch.no_grad():
        t.model.W_U[0, 0] = math.nan
    before = bits(weights(t.model))
    with pytest.raises(TrainingError, match=r"the loss is nan at step 0 with learning rate 0\.00667"):
        t.run()
    assert bits(weights(t.model)) == before
    assert t.step == 0
    assert all(name.startswith("model.") for name in t.state())  # no optimizer moment was made
    assert t.evaluate().recall == 0


# ---- resuming ----


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 0, "row_noise": 0.0},
        {"attention": "learned", "normalization": "LN", "positions": True, "n_layers": 2},
        {"freeze_subjects": True, "tie_unembed": True},
    ],
    ids=["mini-batches and noise", "full batch", "all weights", "frozen and tied"],
)
def test_resumed_training_ends_in_the_same_bits(tiny: Tiny, weights: Weights, changes: dict[str, Any]) -> None:
    whole = trainer(tiny, **changes)
    end = whole.run()
    for stop in (1, 3, 5, 13, 23):
        first = trainer(tiny, **changes)
        first.run(on_step=lambda step, stop=stop: step == stop)
        assert (first.step, first.finished) == (stop, None)
        state = {name: value.clone() for name, value in first.state().items()}
        second = trainer(tiny, **changes, init_seed=5)  # every weight must come from the state
        second.restore(state, stop)
        for _ in range(2):
            first.advance() if first.step < 24 else None  # the state is a copy, not a view of the first trainer
        last = second.run()
        assert (last.step, last.loss, last.recall) == (24, end.loss, end.recall)
        assert second.finished == whole.finished
        assert bits(weights(second.model)) == bits(weights(whole.model))


def test_a_state_from_before_the_first_step(tiny: Tiny, weights: Weights) -> None:
    whole, second = trainer(tiny), trainer(tiny, init_seed=5)
    second.restore(trainer(tiny).state(), 0)
    whole.run()
    second.run()
    assert bits(weights(second.model)) == bits(weights(whole.model))


def test_stopping_between_evaluations_never_ends_training(tiny: Tiny, weights: Weights) -> None:
    """Were the target looked at where training happens to stop, the resumed run would end before the unbroken one."""
    settings = EASY | {"target_loss": 0.5, "eval_every": 100}
    whole = trainer(tiny, **settings)
    assert whole.run().step == 100
    stopped = trainer(tiny, **settings)
    last = stopped.run(on_step=lambda step: step == 99)
    assert (last.step, last.recall) == (99, 1.0)
    assert last.loss <= 0.5
    assert stopped.finished is None
    second = trainer(tiny, **settings)
    second.restore(stopped.state(), 99)
    assert second.run().step == 100
    assert bits(weights(second.model)) == bits(weights(whole.model))


def test_a_state_of_the_last_step_is_finished(tiny: Tiny) -> None:
    whole, second = trainer(tiny), trainer(tiny)
    end = whole.run()
    second.restore(whole.state(), 24)
    assert second.run().loss == end.loss
    assert second.finished == whole.finished


def test_a_state_that_does_not_fit_is_refused(tiny: Tiny, weights: Weights) -> None:
    t = trainer(tiny)
    t.advance()
    state = t.state()
    other = trainer(tiny)
    before = bits(weights(other.model))
    row = "optimizer.exp_avg.embed.W_subject"
    for bad, named in (
        ({k: v for k, v in state.items() if k != row}, row),
        (state | {"model.extra": torch.zeros(1)}, "model.extra"),
        (state | {row: torch.zeros(10, 9)}, row),
        (state | {"model.W_pos": torch.zeros(2, 8)}, "model.W_pos"),
    ):
        with pytest.raises(TrainingError, match=f"does not fit the model: {named} missing, unexpected or misshapen"):
            other.restore(bad, 1)
    with pytest.raises(TrainingError, match="does not fit"):
        other.restore(state, 0)
    assert bits(weights(other.model)) == before


def test_train_config_defaults_are_the_documented_ones() -> None:
    assert TrainConfig().target_loss == 0  # go on to the last step
    assert TrainConfig().row_noise == 0  # off
