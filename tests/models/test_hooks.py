"""Hooks: TransformerLens's names, faithful values, edits that propagate, and no silent broadcasting."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from planted import normal
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from geointerp import FactTransformer, to_bridge
from geointerp.errors import HookError

Build = Callable[..., FactTransformer]
WRITERS = ("hook_attn_out", "hook_mlp_out")
QUERIES = torch.tensor([[0, 5, 6], [4, 7, 1], [2, 2, 5], [3, 0, 7]])


def weights_of_first_block(model: FactTransformer) -> dict[str, Tensor]:
    return dict(model.blocks[0].named_parameters())


def block_names(layer: int, *, attention: str, norm: bool) -> set[str]:
    """As HookedTransformer called them."""
    names = {"hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_mlp_out", "mlp.hook_pre", "mlp.hook_post"}
    names.add("hook_attn_out")  # without attention: what the first block adds of earlier positions, and zeros
    if attention != "none":
        names |= {"attn.hook_v", "attn.hook_pattern", "attn.hook_z"}
    if attention == "learned":
        names |= {"attn.hook_q", "attn.hook_k", "attn.hook_attn_scores"}
    if norm:
        names |= {"ln2.hook_scale", "ln2.hook_normalized"}
        names |= {"ln1.hook_scale", "ln1.hook_normalized"} if attention != "none" else set()
    return {f"blocks.{layer}.{name}" for name in names}


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_names_are_transformer_lenss_and_every_hook_fires(
    build: Build, attention: str, normalization: str | None, positions: bool
) -> None:
    model = build(attention=attention, normalization=normalization, positions=positions, n_layers=2)
    expected = {"hook_embed"} | ({"hook_pos_embed"} if positions else set())
    for layer in range(2):
        expected |= block_names(layer, attention=attention, norm=normalization is not None)
    if normalization is not None:
        expected |= {"ln_final.hook_scale", "ln_final.hook_normalized"}
    assert set(model.hook_dict) == expected
    _, cache = model.run_with_cache(QUERIES)
    assert set(cache.keys()) == expected
    if attention != "none":
        assert expected <= set(to_bridge(model).hook_dict)


@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
@pytest.mark.parametrize("attention", ["learned", "uniform"])
def test_values_are_those_of_a_bridge_of_the_same_weights(
    build: Build, attention: str, normalization: str | None
) -> None:
    model = build(attention=attention, normalization=normalization, positions=True, n_layers=2)
    _, ours = model.run_with_cache(QUERIES)
    _, theirs = to_bridge(model).run_with_cache(QUERIES)
    for name in ours:
        mine, other = ours[name], theirs[name]
        if name.endswith("hook_attn_scores"):  # the native bridge shows the pattern under this name too
            mine = mine.softmax(-1)
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_values_are_those_of_raw_forward_hooks(build: Build) -> None:
    model = build(attention="learned", normalization="LN", positions=True, n_layers=2)
    raw: dict[str, Tensor] = {}

    def keep(name: str, *, given: bool = False) -> Callable[..., None]:
        def hook(module: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            raw[name] = (inputs[0] if given else output).detach().clone()

        return hook

    handles = []
    for layer, block in enumerate(model.blocks):
        at = f"blocks.{layer}"
        assert block.attn is not None
        handles += [
            block.register_forward_hook(keep(f"{at}.hook_resid_pre", given=True)),
            block.register_forward_hook(keep(f"{at}.hook_resid_post")),
            block.attn.register_forward_hook(keep(f"{at}.hook_attn_out")),
            block.mlp.register_forward_hook(keep(f"{at}.hook_mlp_out")),
            block.ln2.register_forward_hook(keep(f"{at}.hook_resid_mid", given=True)),
            block.mlp.register_forward_hook(keep(f"{at}.mlp input", given=True)),
        ]
    plain_logits = model(QUERIES)
    for handle in handles:
        handle.remove()
    logits, cache = model.run_with_cache(QUERIES)
    assert torch.equal(logits, plain_logits)
    for name, value in raw.items():
        if not name.endswith("input"):
            assert torch.equal(cache[name], value), name
    for layer, block in enumerate(model.blocks):
        assert block.mlp.b_in is not None
        pre = raw[f"blocks.{layer}.mlp input"] @ block.mlp.W_in + block.mlp.b_in
        torch.testing.assert_close(cache["pre", layer], pre)
        torch.testing.assert_close(cache["post", layer], pre.relu())


def test_uniform_pattern_is_written_out_only_to_be_looked_at(build: Build) -> None:
    model = build(attention="uniform", n_heads=2)
    before = model(QUERIES)
    logits, cache = model.run_with_cache(QUERIES)
    expected = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(cache["pattern", 0], expected.expand(4, 2, 3, 3))
    torch.testing.assert_close(logits, before, atol=1e-6, rtol=1e-5)
    _, cache = model.run_with_cache(QUERIES, answer_only=True)
    torch.testing.assert_close(cache["pattern", 0], expected[2:].expand(4, 2, 1, 3))
    assert torch.equal(model(QUERIES), before)


def test_with_all_writers_cut_only_the_embedding_is_left(build: Build) -> None:
    model = build(attention="learned", n_layers=2, positions=True)
    names = [f"blocks.{layer}.{name}" for layer in (0, 1) for name in WRITERS]
    cut: list[Any] = [(name, lambda x, hook: torch.zeros_like(x)) for name in names]
    logits = model.run_with_hooks(QUERIES, fwd_hooks=cut)
    assert model.W_pos is not None
    torch.testing.assert_close(logits, (model.W_E[QUERIES] + model.W_pos) @ model.W_U)


def test_an_edit_of_the_mlp_output_moves_the_logits_by_its_share(build: Build) -> None:
    model, push = build(n_layers=1), normal(8)
    before = model(QUERIES)
    after = model.run_with_hooks(QUERIES, fwd_hooks=[("blocks.0.hook_mlp_out", lambda x, hook: x + push)])
    torch.testing.assert_close(after - before, (push @ model.W_U).expand_as(before), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("answer_only", [True, False])
def test_an_edited_pattern_is_what_mixes_the_values(build: Build, answer_only: bool) -> None:
    model = build(attention="uniform", n_layers=1)
    pattern = torch.softmax(normal(4, 2, 3, 3), -1)
    edited = pattern[:, :, -1:] if answer_only else pattern
    logits = model.run_with_hooks(
        QUERIES, answer_only=answer_only, fwd_hooks=[("blocks.0.attn.hook_pattern", lambda x, hook: edited)]
    )
    w = weights_of_first_block(model)
    x = model.W_E[QUERIES]
    mid = x + w["attn.b_O"]
    for head in range(2):
        mid = mid + pattern[:, head] @ (x @ w["attn.W_V"][head] + w["attn.b_V"][head]) @ w["attn.W_O"][head]
    hidden = (mid @ w["mlp.W_in"] + w["mlp.b_in"]).relu()
    expected = (mid + hidden @ w["mlp.W_out"] + w["mlp.b_out"]) @ model.W_U
    torch.testing.assert_close(logits, expected[:, -1:] if answer_only else expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["learned", "uniform"])
def test_values_and_mixtures_can_be_edited(build: Build, attention: str) -> None:
    model = build(attention=attention)
    b_O = weights_of_first_block(model)["attn.b_O"]
    for name in ("hook_v", "hook_z"):
        seen: list[Tensor] = []
        model.run_with_hooks(
            QUERIES,
            fwd_hooks=[
                (f"blocks.0.attn.{name}", lambda x, hook: torch.zeros_like(x)),
                ("blocks.0.hook_attn_out", lambda x, hook, seen=seen: seen.append(x)),
            ],
        )
        assert torch.equal(seen[0], b_O.expand(4, 3, 8))


@pytest.mark.parametrize("normalization", [None, "LN"])
@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_editing_in_place_never_writes_into_a_weight(build: Build, attention: str, normalization: str | None) -> None:
    model = build(attention=attention, normalization=normalization, positions=True)
    before = {name: value.clone() for name, value in model.named_parameters()}
    first = model(QUERIES[:1])
    with torch.no_grad():
        for name in model.hook_dict:
            # a batch of one: an expanded weight would then be the weight itself
            edited = model.run_with_hooks(QUERIES[:1], fwd_hooks=[(name, lambda x, hook: x.zero_())])
            assert not torch.allclose(edited, first), name
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name]), name
    assert torch.equal(model(QUERIES[:1]), first)


# ---- refusals (cases.md 6) ----


def first_example(tensor: Tensor, *, hook: HookPoint) -> Tensor:
    return tensor.mean(0)


def kept_axis(x: Tensor, hook: HookPoint, keepdim: bool) -> Tensor:
    return x.mean(0, keepdim=keepdim)


class Averaging:
    def __call__(self, x: Tensor, *, hook: HookPoint) -> Tensor:
        return x.mean(0)


@pytest.mark.parametrize(
    "hook",
    [first_example, partial(kept_axis, keepdim=True), Averaging(), lambda x, hook: x[:1]],
    ids=["function", "partial", "object", "lambda"],
)
@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_a_broadcastable_shape_is_refused_at_every_hook(build: Build, attention: str, hook: Callable[..., Any]) -> None:
    model = build(attention=attention, normalization="LN", positions=True)
    before = model(QUERIES)
    for name in model.hook_dict:
        with pytest.raises(HookError) as caught:
            model.run_with_hooks(QUERIES, fwd_hooks=[(name, hook)])
        _, cache = model.run_with_cache(QUERIES, names_filter=name)
        expected = tuple(cache[name].shape)
        given = tuple(hook(cache[name], hook=model.hook_dict[name]).shape)
        assert str(caught.value).startswith(f"hook on {name} returned shape {given}, expected {expected}")
    assert torch.equal(model(QUERIES), before)  # and none of them is left behind


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (lambda x, hook: x.double(), r"returned dtype torch.float64, expected torch.float32; convert with"),
        (lambda x, hook: 0.0, r"returned float; return None to leave the activation as it is, or a tensor of shape \("),
        (lambda x, hook: (x,), "returned tuple; return None"),
        (lambda x, hook: x.detach().numpy(), "returned ndarray; return None"),
    ],
)
def test_what_is_no_fitting_tensor_is_refused(build: Build, hook: Callable[..., Any], message: str) -> None:
    with pytest.raises(HookError, match=f"^hook on blocks.0.mlp.hook_post {message}"):
        build().run_with_hooks(QUERIES, fwd_hooks=[("blocks.0.mlp.hook_post", hook)])


@pytest.mark.parametrize("way", ["add_hook", "add_perma_hook", "hook point", "permanent hook point", "context"])
def test_whichever_way_the_hook_was_added(build: Build, way: str) -> None:
    model, name = build(), "blocks.0.hook_resid_post"
    point = model.hook_dict[name]
    if way == "add_hook":
        model.add_hook(name, first_example)
    elif way == "add_perma_hook":
        model.add_perma_hook(name, first_example)
    elif way == "hook point":
        point.add_hook(first_example)
    elif way == "permanent hook point":
        point.add_perma_hook(first_example)
    if way == "context":
        with model.hooks([(name, first_example)]), pytest.raises(HookError, match=name):
            model(QUERIES)
    else:
        assert model.list_hooks()[name][0].user_hook is first_example
        with pytest.raises(HookError, match=name):
            model(QUERIES)


def test_answers_from_rows_are_checked_too(build: Build) -> None:
    model = build()
    with model.hooks([("hook_embed", first_example)]), pytest.raises(HookError, match=r"shape \(2, 8\), expected \(4"):
        model.answer_logits(normal(4, 8), torch.zeros(4, dtype=torch.int64))


# ---- backward ----


def test_backward_hooks_see_the_gradient(build: Build) -> None:
    model, name = build(attention="learned"), "blocks.0.hook_resid_mid"
    seen: list[Tensor] = []

    def look(grad: Tensor, hook: HookPoint) -> None:
        seen.append(grad.clone())

    with model.hooks(bwd_hooks=[(name, look)]):
        model(QUERIES)[:, -1, 0].sum().backward()
    w = weights_of_first_block(model)
    _, cache = model.run_with_cache(QUERIES)
    mid = cache[name][:, -1].detach()
    open_units = (mid @ w["mlp.W_in"] + w["mlp.b_in"] > 0).float()
    by_hand = model.W_U[:, 0] + (open_units * (w["mlp.W_out"] @ model.W_U[:, 0])) @ w["mlp.W_in"].T
    torch.testing.assert_close(seen[0][:, -1], by_hand.detach(), atol=1e-5, rtol=1e-5)
    assert not seen[0][:, :-1].any()


def test_backward_hooks_can_change_the_gradient(build: Build) -> None:
    model = build()

    def gradient() -> Tensor:
        model.zero_grad()
        model(QUERIES).sum().backward()
        assert model.embed.W_subject.grad is not None
        return model.embed.W_subject.grad.clone()

    plain_gradient = gradient()
    for hook in (lambda grad, hook: 3 * grad, lambda grad, hook: (3 * grad,)):
        with model.hooks(bwd_hooks=[("hook_embed", hook)]):
            torch.testing.assert_close(gradient(), 3 * plain_gradient)
    assert torch.equal(gradient(), plain_gradient)


@pytest.mark.parametrize("hook", [lambda g, hook: g.mean(0), lambda g, hook: (g.mean(0),), lambda g, hook: 1.0])
def test_backward_hooks_are_checked(build: Build, hook: Callable[..., Any]) -> None:
    model = build()
    with model.hooks(bwd_hooks=[("hook_embed", hook)]), pytest.raises(HookError, match="hook on hook_embed returned"):
        model(QUERIES).sum().backward()


def test_gradients_can_be_cached(build: Build) -> None:
    model = build()
    cache, forward, backward = model.get_caching_hooks(lambda name: name == "hook_embed", incl_bwd=True)
    with model.hooks(forward, backward):
        model(QUERIES).sum().backward()
    assert set(cache) == {"hook_embed", "hook_embed_grad"}
    model.zero_grad()
    model(QUERIES).sum().backward()
    table = torch.cat([model.embed.W_subject, model.embed.W_relation])
    by_row = torch.zeros_like(table).index_put((QUERIES,), cache["hook_embed_grad"], accumulate=True)
    assert model.embed.W_subject.grad is not None
    torch.testing.assert_close(by_row[:5], model.embed.W_subject.grad, atol=1e-5, rtol=1e-5)
