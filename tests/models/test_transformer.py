"""FactTransformer: its logits by numpy and a loop, its initial weights, its refusals."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from planted import normal

from geointerp import FactTransformer, FactTransformerConfig, GeointerpError, random_bijections, recall
from geointerp.errors import FactsError

Build = Callable[..., FactTransformer]
QUERIES = torch.tensor([[0, 5, 6], [4, 7, 1], [2, 2, 5], [3, 0, 7]])  # 5 subjects, relations are tokens 5..7

ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def by_hand(model: FactTransformer, tokens: torch.Tensor) -> np.ndarray:
    """Logits ``[query pos attribute]`` from the weights alone: one query, head and position at a time."""
    c = model.config
    w = {name: value.detach().double().numpy() for name, value in model.named_parameters()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        if c.normalization is None:
            return x
        centred = x - x.mean(-1, keepdims=True) if c.normalization == "LN" else x
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.w"]
        return scaled + w[f"{name}.b"] if c.normalization == "LN" else scaled

    def attend(x: np.ndarray, at: str) -> np.ndarray:
        out = np.zeros_like(x)
        for head in range(c.n_heads):
            project = {
                kind: x @ w[f"{at}.W_{kind}"][head] + (w[f"{at}.b_{kind}"][head] if c.biases else 0)
                for kind in ("Q", "K", "V")
                if f"{at}.W_{kind}" in w
            }
            for i in range(len(x)):
                if c.attention == "uniform":
                    share = np.full(i + 1, 1 / (i + 1))
                else:
                    share = np.exp(project["K"][: i + 1] @ project["Q"][i] / math.sqrt(c.d_model // c.n_heads))
                    share /= share.sum()
                out[i] += share @ project["V"][: i + 1] @ w[f"{at}.W_O"][head]
        return out + w[f"{at}.b_O"] if c.biases else out

    tables = ["subject", "relation"] + (["attribute"] if c.tie_unembed else [])
    table = np.concatenate([w[f"embed.W_{kind}"] for kind in tables])
    unembed = w["embed.W_attribute"].T if c.tie_unembed else w["unembed.W_U"]
    logits = []
    for query in tokens.numpy():
        x = table[query]
        if c.positions:
            x = x + w["W_pos"][: len(query)]
        if c.attention == "none":
            x = np.stack([x[: i + 1].sum(0) for i in range(len(query))])
        for layer in range(c.n_layers):
            at = f"blocks.{layer}"
            if c.attention != "none":
                x = x + attend(norm(x, f"{at}.ln1"), f"{at}.attn")
            pre = norm(x, f"{at}.ln2") @ w[f"{at}.mlp.W_in"] + (w[f"{at}.mlp.b_in"] if c.biases else 0)
            x = x + np.vectorize(ACTIVATIONS[c.act_fn])(pre) @ w[f"{at}.mlp.W_out"]
            x = x + (w[f"{at}.mlp.b_out"] if c.biases else 0)
        logits.append(norm(x, "ln_final") @ unembed)
    return np.stack(logits)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("tie_unembed", [True, False])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_logits_are_those_computed_by_hand(
    build: Build,
    attention: str,
    positions: bool,
    normalization: str | None,
    biases: bool,
    tie_unembed: bool,
    n_layers: int,
) -> None:
    model = build(
        attention=attention,
        positions=positions,
        normalization=normalization,
        biases=biases,
        tie_unembed=tie_unembed,
        n_layers=n_layers,
    ).double()
    expected = torch.from_numpy(by_hand(model, QUERIES))
    close = partial(torch.testing.assert_close, atol=1e-10, rtol=1e-10)
    close(model(QUERIES), expected)
    close(model(QUERIES, answer_only=True), expected[:, -1:])
    # a hook on the pattern makes uniform attention write its pattern out
    with model.hooks([(name, lambda x, hook: None) for name in model.hook_dict]):
        close(model(QUERIES), expected)
        close(model(QUERIES, answer_only=True), expected[:, -1:])


@pytest.mark.parametrize("act_fn", list(ACTIVATIONS))
def test_activations(build: Build, act_fn: str) -> None:
    model = build(act_fn=act_fn).double()
    torch.testing.assert_close(model(QUERIES), torch.from_numpy(by_hand(model, QUERIES)), atol=1e-10, rtol=1e-10)


def test_attribute_tokens_of_a_tied_model_are_its_attribute_vectors(build: Build) -> None:
    model = build(tie_unembed=True).double()
    tokens = torch.tensor([[8, 14, 0]])  # attributes 0 and 6
    torch.testing.assert_close(model(tokens), torch.from_numpy(by_hand(model, tokens)), atol=1e-10, rtol=1e-10)
    assert torch.equal(model.W_E[8:], model.attribute_vectors)


@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_answer_logits_of_the_models_own_rows_are_its_answers(
    build: Build, attention: str, positions: bool, normalization: str | None
) -> None:
    model = build(attention=attention, positions=positions, normalization=normalization, n_layers=2)
    subjects, relations = torch.arange(5).repeat(3), torch.arange(3).repeat_interleave(5)
    tokens = model.to_tokens(subjects, relations)
    assert tokens.tolist() == [[s, 5 + r] for r in range(3) for s in range(5)]
    asked = model.answer_logits(model.subject_rows[subjects], relations)
    torch.testing.assert_close(asked, model(tokens)[:, -1], atol=1e-6, rtol=1e-5)
    assert torch.equal(asked, model(tokens, answer_only=True)[:, 0])
    torch.testing.assert_close(model.answer_residual(model.subject_rows[subjects], relations) @ model.W_U, asked)


def test_answer_logits_follow_the_row_they_are_given(build: Build) -> None:
    model, rows = build(normalization="LN"), normal(3, 8)
    relations = torch.tensor([2, 0, 1])
    asked = model.answer_logits(rows, relations)
    with torch.no_grad():
        model.embed.W_subject[:3] = rows
    torch.testing.assert_close(asked, model(model.to_tokens(torch.arange(3), relations))[:, -1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_a_later_token_never_reaches_an_earlier_answer(build: Build, attention: str) -> None:
    model = build(attention=attention, positions=True, normalization="LN", n_layers=2)
    before, after = model(torch.tensor([[0, 5, 6]])), model(torch.tensor([[0, 5, 1]]))
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2], after[:, 2])
    alone = model(torch.tensor([[0, 5]]))
    torch.testing.assert_close(before[:, :2], alone, atol=1e-6, rtol=1e-5)


# ---- initial weights ----


def initial(**changes: Any) -> dict[str, torch.Tensor]:
    sizes: dict[str, Any] = {"n_subjects": 5, "n_relations": 3, "n_attributes": 7, "d_model": 8, "n_heads": 2}
    model = FactTransformer(FactTransformerConfig(**{**sizes, "d_mlp": 16, **changes}))
    return {name: value.detach() for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"d_mlp": 32}, {"blocks.0.mlp.W_in", "blocks.0.mlp.W_out", "blocks.0.mlp.b_in"}),
        ({"n_subjects": 6}, {"embed.W_subject"}),
        ({"n_attributes": 8}, {"unembed.W_U"}),
        ({"attention": "learned"}, set()),
        ({"attention": "none"}, set()),
        ({"normalization": "LN"}, set()),
        ({"positions": True}, set()),
        ({"biases": False}, set()),
        ({"freeze_subjects": True, "freeze_unembed": True}, set()),
        ({"n_layers": 2}, {"blocks.0.attn.W_O", "blocks.0.mlp.W_out"}),  # scaled by 1/sqrt(2 n_layers)
        ({"n_heads": 1}, {"blocks.0.attn.W_V", "blocks.0.attn.W_O", "blocks.0.attn.b_V"}),
    ],
)
def test_a_size_or_switch_leaves_the_other_weights_alone(change: dict[str, Any], moved: set[str]) -> None:
    before, after = initial(), initial(**change)
    common = before.keys() & after.keys()
    assert {n for n in common if before[n].shape != after[n].shape or not torch.equal(before[n], after[n])} == moved


def test_equal_seeds_give_equal_weights_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = initial(init_seed=4, attention="learned", positions=True)
    assert torch.equal(torch.rand(1), expected)
    torch.manual_seed(99)
    again, other = (initial(init_seed=s, attention="learned", positions=True) for s in (4, 5))
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = {name for name in first if not name.rsplit(".", 1)[-1].startswith("b")}
    assert all(torch.equal(first[name], other[name]) == (name not in drawn) for name in first)
    same_shape = [first[n].flatten()[:8] for n in ("embed.W_subject", "embed.W_relation", "W_pos", "unembed.W_U")]
    assert len({tuple(t.tolist()) for t in same_shape}) == 4  # a stream of its own for each weight


def test_initial_scales() -> None:
    sizes: dict[str, Any] = {"n_subjects": 4000, "n_attributes": 4000, "d_model": 64, "d_mlp": 256, "n_layers": 2}
    weights = initial(**sizes, normalization="LN", attention="learned")
    expected = {
        "embed.W_subject": 64**-0.5,
        "unembed.W_U": 64**-0.5,
        "blocks.1.attn.W_Q": 64**-0.5,
        "blocks.1.attn.W_V": 64**-0.5,
        "blocks.1.mlp.W_in": 64**-0.5,
        "blocks.1.attn.W_O": 64**-0.5 / 2,  # sqrt(2 n_layers) = 2
        "blocks.1.mlp.W_out": 256**-0.5 / 2,
    }
    for name, sd in expected.items():
        assert float(weights[name].std()) == pytest.approx(sd, rel=0.05), name
        assert abs(float(weights[name].mean())) < 0.05 * sd, name
    for name, value in weights.items():
        leaf = name.rsplit(".", 1)[-1]
        if leaf.startswith("b"):
            assert not value.any(), name
        elif leaf == "w":
            assert bool((value == 1).all()), name


@pytest.mark.parametrize("tie_unembed", [True, False])
@pytest.mark.parametrize("freeze_unembed", [True, False])
@pytest.mark.parametrize("freeze_subjects", [True, False])
def test_each_freeze_stops_its_own_weight(
    build: Build, freeze_subjects: bool, freeze_unembed: bool, tie_unembed: bool
) -> None:
    model = build(freeze_subjects=freeze_subjects, freeze_unembed=freeze_unembed, tie_unembed=tie_unembed)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    attributes = "embed.W_attribute" if tie_unembed else "unembed.W_U"
    assert frozen == {n for n, on in (("embed.W_subject", freeze_subjects), (attributes, freeze_unembed)) if on}


def test_parameters_are_counted(build: Build) -> None:
    # rows 5x8, relations 3x8, W_V and W_O 8x8 each, b_V and b_O 8, W_in and W_out 8x16, b_in 16, b_out 8, W_U 8x7
    assert build().n_parameters == 40 + 24 + 128 + 16 + 256 + 24 + 56


# ---- what it refuses (cases.md 12) ----


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[0, 5], [1, 8]], "token id 8 in row 1, position 1 is outside 0..7"),
        ([[0, 5], [-1, 6]], "token id -1 in row 1, position 0 is outside 0..7"),
        ([[0, 5, 6, 7]], "a query of 4 tokens does not fit n_ctx=3"),
    ],
)
def test_tokens_out_of_range(build: Build, tokens: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()(torch.tensor(tokens))


def test_ids_out_of_range(build: Build) -> None:
    model, zero = build(), torch.tensor([0, 0])
    with pytest.raises(FactsError, match=r"relation id 3 in row 1 is outside 0..2"):
        model.to_tokens(zero, torch.tensor([0, 3]))
    with pytest.raises(FactsError, match=r"subject id 5 in row 0 is outside 0..4"):
        model.to_tokens(torch.tensor([5, 0]), zero)
    with pytest.raises(FactsError, match=r"relation id 3 in row 0 is outside 0..2"):
        model.answer_logits(normal(2, 8), torch.tensor([3, 0]))
    with pytest.raises(FactsError, match=r"relation id -1 in row 1 is outside 0..2"):
        model.answer_logits(normal(2, 8), torch.tensor([0, -1]))
    with pytest.raises(FactsError, match=r"attribute id 7 in row 1 is outside 0..6"):
        model.tokens_to_residual_directions(torch.tensor([0, 7]))
    with pytest.raises(FactsError, match=r"attribute id -1 in row 0 is outside 0..6"):
        model.tokens_to_residual_directions(-1)


def test_a_table_of_other_sizes_does_not_fit() -> None:
    model = FactTransformer(FactTransformerConfig(n_subjects=64, n_relations=2, n_attributes=64))
    model.check_fits(random_bijections(64, 2, seed=0))
    with pytest.raises(FactsError, match=r"the model has 64 subjects \(ids 0\.\.63\) and the table 65"):
        model.check_fits(random_bijections(65, 2, seed=0))
    with pytest.raises(FactsError, match=r"the model has 2 relations \(ids 0\.\.1\) and the table 3"):
        model.check_fits(random_bijections(64, 3, seed=0))
    with pytest.raises(FactsError, match=r"the model has 64 attributes \(ids 0\.\.63\) and the table 128"):
        model.check_fits(random_bijections(64, 2, seed=0, disjoint=True))
    assert issubclass(FactsError, GeointerpError)


# ---- number formats ----


def test_huge_logits_give_a_finite_loss(build: Build) -> None:  # cases.md 19
    model, facts = build(n_attributes=5), random_bijections(5, 3, seed=0)
    with torch.no_grad():
        model.W_U.mul_(1e4)
    result = recall(model.answer_logits, model.subject_rows, facts)
    relation, subject = facts.fact_ids
    logits = by_hand(model, model.to_tokens(subject, relation))[:, -1]
    own = logits[np.arange(15), facts.answers[relation, subject].numpy()]
    top = logits.max(1)
    expected = (top + np.log(np.exp(logits - top[:, None]).sum(1)) - own).mean()
    assert expected > 1000
    assert result.loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_half_precision(  # cases.md 3
    build: Build, attention: str, normalization: str | None, dtype: torch.dtype, tolerance: float
) -> None:
    model = build(attention=attention, normalization=normalization, positions=True)
    exact = by_hand(model, QUERIES)
    logits = model.to(dtype)(QUERIES)
    assert logits.dtype == dtype
    np.testing.assert_allclose(logits.detach().float().numpy(), exact, atol=tolerance * np.abs(exact).max())
    subjects, relations = torch.arange(3), torch.arange(3)
    assert model.answer_logits(model.subject_rows[subjects], relations).dtype == dtype
