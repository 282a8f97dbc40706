"""What TransformerLens's own tools make of a FactTransformer: ActivationCache and patching."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens import ActivationCache, patching

from geointerp import FactTransformer

Build = Callable[..., FactTransformer]
QUERIES = torch.tensor([[0, 5, 6], [4, 7, 1], [2, 2, 5], [3, 0, 7]])
close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


def run(model: FactTransformer, tokens: Tensor = QUERIES) -> tuple[Tensor, ActivationCache]:
    with torch.no_grad():
        return model.run_with_cache(tokens)


def test_the_cache_is_transformer_lenss(build: Build) -> None:
    model = build()
    logits, cache = model.run_with_cache(QUERIES)
    assert isinstance(cache, ActivationCache)
    assert torch.equal(cache["resid_post", 0], cache["blocks.0.hook_resid_post"])
    torch.testing.assert_close(cache["resid_post", -1] @ model.W_U, logits)
    assert cache["embed"].shape == (4, 3, 8)
    _, plain_dict = model.run_with_cache(QUERIES, return_cache_object=False)
    assert type(plain_dict) is dict
    _, one = model.run_with_cache(QUERIES[:1], remove_batch_dim=True)
    assert one["resid_post", 0].shape == (3, 8)
    _, few = model.run_with_cache(QUERIES, names_filter=lambda name: name.endswith("hook_pre"))
    assert list(few.keys()) == ["blocks.0.mlp.hook_pre"]


def test_config_has_the_models_sizes(build: Build) -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    cfg = build(n_layers=2, normalization="RMS", attention="learned", act_fn="gelu").cfg
    assert torch.equal(torch.rand(1), expected)  # reading it does not seed the global generator
    assert (cfg.n_layers, cfg.n_heads, cfg.d_model, cfg.d_head, cfg.d_mlp, cfg.n_ctx) == (2, 2, 8, 4, 16, 3)
    assert (cfg.d_vocab, cfg.d_vocab_out, cfg.act_fn, cfg.normalization_type) == (8, 7, "gelu", "RMS")
    assert (cfg.device, cfg.dtype) == ("cpu", torch.float32)
    assert build().to(torch.bfloat16).cfg.dtype == torch.bfloat16


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("attention", ["learned", "uniform"])
def test_decompositions_add_up_to_the_residual(build: Build, attention: str, positions: bool, biases: bool) -> None:
    model = build(attention=attention, positions=positions, biases=biases, n_layers=2)
    _, cache = run(model)
    final = cache["resid_post", 1]
    components, labels = cache.decompose_resid(return_labels=True)
    embeds = ["embed", "pos_embed"] if positions else ["embed"]
    assert labels == [*embeds, "0_attn_out", "0_mlp_out", "1_attn_out", "1_mlp_out"]
    close(components.sum(0), final)

    heads, labels = cache.stack_head_results(return_labels=True)
    assert labels == ["L0H0", "L0H1", "L1H0", "L1H1"]
    w = dict(model.named_parameters())
    out = heads[2] + heads[3] + (w["blocks.1.attn.b_O"] if biases else 0)
    close(out, cache["attn_out", 1])
    close(heads[2], cache["z", 1][:, :, 0] @ w["blocks.1.attn.W_O"][0])

    neurons: Any = cache.stack_neuron_results(layer=2)
    assert neurons.shape == (32, 4, 3, 8)
    out = neurons[16:].sum(0) + (w["blocks.1.mlp.b_out"] if biases else 0)
    close(out, cache["mlp_out", 1])
    close(torch.as_tensor(cache.stack_neuron_results(layer=2, incl_remainder=True)).sum(0), final)

    for expand in (True, False):
        parts, labels = cache.get_full_resid_decomposition(expand_neurons=expand, return_labels=True)
        assert len(labels) == len(parts) == 4 + (32 if expand else 2) + len(embeds) + 1
        close(parts.sum(0), final)
    mid: Any = cache.get_full_resid_decomposition(layer=1, mlp_input=True)
    close(mid.sum(0), cache["resid_mid", 1])

    stream, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]
    assert torch.equal(stream[3], cache["resid_mid", 1])


def test_biases_add_up_layer_by_layer(build: Build) -> None:
    model = build(n_layers=2)
    w = dict(model.named_parameters())
    b_O, b_out = ([w[f"blocks.{layer}.{name}"] for layer in range(2)] for name in ("attn.b_O", "mlp.b_out"))
    assert not model.accumulated_bias(0).any()
    close(model.accumulated_bias(0, mlp_input=True), b_O[0])
    close(model.accumulated_bias(1), b_O[0] + b_out[0])
    close(model.accumulated_bias(1, mlp_input=True), b_O[0] + b_out[0] + b_O[1])
    close(model.accumulated_bias(2), b_O[0] + b_out[0] + b_O[1] + b_out[1])
    close(model.accumulated_bias(2, include_mlp_biases=False), b_O[0] + b_O[1])
    assert not build(biases=False).accumulated_bias(1).any()
    torch.testing.assert_close(build(attention="none").accumulated_bias(1), build(attention="none").blocks[0].mlp.b_out)


def test_without_attention_the_stream_is_the_sum_of_embeddings_and_mlps(build: Build) -> None:
    model = build(attention="none", n_layers=2)
    _, cache = run(model)
    close(cache["resid_pre", 0], model.W_E[QUERIES])
    close(cache["resid_mid", 0], model.W_E[QUERIES].cumsum(1))
    assert not cache["attn_out", 1].any()
    parts, labels = cache.decompose_resid(return_labels=True)
    assert labels == ["embed", "0_attn_out", "0_mlp_out", "1_attn_out", "1_mlp_out"]
    close(parts.sum(0), cache["resid_post", 1])
    logits = model(QUERIES)
    answers = torch.tensor([6, 0, 3, 3])
    attributions = cache.logit_attrs(parts[..., -1, :], answers, pos_slice=-1)
    close(attributions.sum(0), logits[torch.arange(4), -1, answers])


@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
def test_logit_attributions_add_up_to_the_logit(build: Build, normalization: str | None) -> None:
    model = build(attention="learned", normalization=normalization, n_layers=2, fill=False)  # norm weights 1 and 0
    logits, cache = run(model)
    parts: Any = cache.decompose_resid()
    answers = torch.tensor([6, 0, 3, 3])
    attributions = cache.logit_attrs(parts[..., -1, :], answers, pos_slice=-1)
    assert attributions.shape == (5, 4)
    close(attributions.sum(0), logits[torch.arange(4), -1, answers])
    against = cache.logit_attrs(parts, 2, incorrect_tokens=5)
    close(against.sum(0), logits[..., 2] - logits[..., 5])


# ---- patching ----


def answer_zero(logits: Tensor) -> Tensor:
    """Logit of attribute 0 at the last position, summed over queries."""
    return logits[:, -1, 0].sum().detach()


@pytest.mark.parametrize("attention", ["learned", "uniform", "none"])
def test_patching_the_first_stream_swaps_one_token(build: Build, attention: str) -> None:
    model = build(attention=attention, positions=True, n_layers=2)
    _, clean = run(model, torch.tensor([[1, 5]]))
    corrupted = torch.tensor([[4, 7]])
    swept = patching.get_act_patch_resid_pre(model, corrupted, clean, answer_zero)
    swapped = torch.stack([answer_zero(model(torch.tensor(query))) for query in ([[1, 7]], [[4, 5]])])
    close(swept[0], swapped.detach())


def test_patching_an_mlp_output_swaps_its_term(build: Build) -> None:
    model = build(attention="uniform", n_layers=1)
    clean_tokens, corrupted = torch.tensor([[1, 5], [2, 6]]), torch.tensor([[4, 7], [0, 5]])
    _, clean = run(model, clean_tokens)
    before, cache = run(model, corrupted)
    swept = patching.get_act_patch_mlp_out(model, corrupted, clean, answer_zero)
    assert swept.shape == (1, 2)
    stream = cache["resid_mid", 0][:, -1] + clean["mlp_out", 0][:, -1]
    assert float(swept[0, 0]) == pytest.approx(float(answer_zero(before)), abs=1e-5)
    assert float(swept[0, 1]) == pytest.approx(float((stream @ model.W_U[:, 0]).detach().sum()), abs=1e-5)
    assert float(swept[0, 1]) != pytest.approx(float(answer_zero(before)), abs=1e-3)


def test_patching_heads(build: Build) -> None:
    model = build(attention="uniform", n_layers=1)
    _, clean = run(model, torch.tensor([[1, 5]]))
    corrupted = torch.tensor([[4, 7]])
    before, _ = run(model, corrupted)
    # a uniform pattern is the same whatever is asked, so patching it does nothing
    patterns = patching.get_act_patch_attn_head_pattern_all_pos(model, corrupted, clean, answer_zero)
    close(patterns, answer_zero(before).expand(1, 2))

    outputs = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, clean, answer_zero)
    w = dict(model.blocks[0].named_parameters())
    for patched in range(2):
        mid = model.W_E[7] + w["attn.b_O"]
        for head in range(2):
            asked = torch.tensor([1, 5] if head == patched else [4, 7])
            value = model.W_E[asked].mean(0) @ w["attn.W_V"][head] + w["attn.b_V"][head]
            mid = mid + value @ w["attn.W_O"][head]
        final = mid + (mid @ w["mlp.W_in"] + w["mlp.b_in"]).relu() @ w["mlp.W_out"] + w["mlp.b_out"]
        assert float(outputs[0, patched]) == pytest.approx(float((final @ model.W_U[:, 0]).detach()), abs=1e-5)


def test_patching_with_per_example_results(build: Build) -> None:
    model = build(attention="learned", n_layers=2)
    clean_tokens, corrupted = torch.tensor([[1, 5], [2, 6]]), torch.tensor([[4, 5], [0, 6]])
    _, clean = run(model, clean_tokens)
    result = patching.get_act_patch_resid_pre(
        model, corrupted, clean, lambda logits: logits[:, -1, 0], reduce="none", baseline=True
    )
    with torch.no_grad():
        close(result.baseline, model(corrupted)[:, -1, 0])
        close(result.values[0, 0], model(clean_tokens)[:, -1, 0])
    recovered = result.normalized(model(clean_tokens)[:, -1, 0].detach())
    assert recovered[0, 0].tolist() == pytest.approx([1, 1], abs=1e-4)
    assert recovered[0, 1].tolist() == pytest.approx([0, 0], abs=1e-4)
    assert not any(math.isnan(x) for x in recovered.flatten().tolist())
