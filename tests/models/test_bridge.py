"""to_bridge and from_bridge: equal logits where both architectures exist, a refusal where not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from geointerp import FactTransformer, from_bridge, to_bridge
from geointerp.errors import ConfigError

Build = Callable[..., FactTransformer]
QUERIES = torch.tensor([[0, 5, 6], [4, 7, 1], [2, 2, 5], [3, 0, 7]])
close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


def native(**changes: Any) -> TransformerBridge:
    """A native bridge of 5 + 3 input tokens and 7 attributes, every weight random."""
    sizes: dict[str, Any] = {"d_model": 8, "d_head": 4, "n_heads": 2, "n_layers": 2, "n_ctx": 3, "d_mlp": 16}
    others = {"d_vocab": 8, "d_vocab_out": 7, "act_fn": "relu", "normalization_type": None, "seed": 0}
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**(sizes | others | changes)))  # pyright: ignore[reportAttributeAccessIssue] - attached at import
    rng = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in bridge.state_dict().values():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=rng))
        bridge.state_dict()["unembed.bias"].zero_()
    return bridge.eval()


@pytest.mark.parametrize("tie_unembed", [True, False])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("normalization", [None, "LN", "RMS"])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("attention", ["learned", "uniform"])
def test_equal_logits_there_and_back(
    build: Build,
    attention: str,
    positions: bool,
    normalization: str | None,
    biases: bool,
    tie_unembed: bool,
) -> None:
    model = build(
        attention=attention,
        positions=positions,
        normalization=normalization,
        biases=biases,
        tie_unembed=tie_unembed,
        n_layers=2,
    )
    exact = to_bridge(model.double())(QUERIES)
    tolerance = 1e-5 if normalization == "RMS" else 1e-10  # the bridge's RMSNorm computes in float32 always
    torch.testing.assert_close(exact, model(QUERIES), atol=tolerance, rtol=tolerance)
    with torch.no_grad():  # weights of the size that training leaves: logits of a few units
        for weight in model.float().parameters():
            weight.mul_(0.5)
    bridge = to_bridge(model)
    logits = model(QUERIES)
    close(bridge(QUERIES), logits)
    if not tie_unembed:
        close(from_bridge(bridge, 5, 3)(QUERIES), logits)
        return
    with pytest.raises(ConfigError, match="d_vocab=15"):  # the bridge has input tokens for the 7 attributes
        from_bridge(bridge, 5, 3)
    close(from_bridge(bridge, 5, 10)(QUERIES), logits)


@pytest.mark.parametrize("act_fn", ["relu", "gelu", "gelu_new", "silu"])
def test_every_activation_exists_on_both_sides(build: Build, act_fn: str) -> None:
    model = build(act_fn=act_fn, attention="learned")
    close(to_bridge(model)(QUERIES), model(QUERIES))


@pytest.mark.parametrize("normalization_type", [None, "LN", "RMS"])
@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_a_bridge_booted_elsewhere(normalization_type: str | None, n_heads: int) -> None:
    bridge = native(normalization_type=normalization_type, n_heads=n_heads, d_head=8 // n_heads)
    model = from_bridge(bridge, 5, 3)
    close(model(QUERIES), bridge(QUERIES))
    config = model.config
    assert (config.n_subjects, config.n_relations, config.n_attributes, config.n_layers) == (5, 3, 7, 2)
    assert (config.attention, config.positions, config.biases) == ("learned", True, True)
    assert torch.equal(model.W_E, bridge.W_E)
    assert not model.training


def test_defaults_of_the_bridge_are_understood() -> None:
    bridge = native(d_mlp=None, d_vocab_out=-1)  # 4 d_model hidden units, as many outputs as inputs
    model = from_bridge(bridge, 5, 3)
    assert (model.config.d_mlp, model.config.n_attributes) == (32, 8)
    close(model(QUERIES), bridge(QUERIES))


def test_converting_copies_weights_and_leaves_the_global_generator_alone(build: Build) -> None:
    model = build(attention="learned", positions=True)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    bridge = to_bridge(model)
    back = from_bridge(bridge, 5, 3)
    assert torch.equal(torch.rand(1), expected)
    before = model(QUERIES), bridge(QUERIES)
    with torch.no_grad():
        for weight in back.parameters():
            weight.zero_()
    assert torch.equal(bridge(QUERIES), before[1])
    with torch.no_grad():
        for weight in bridge.state_dict().values():
            weight.zero_()
    assert torch.equal(model(QUERIES), before[0])


def test_half_precision_stays_half(build: Build) -> None:
    model = build(attention="learned", positions=True, normalization="LN").to(torch.bfloat16)
    bridge = to_bridge(model)
    logits = bridge(QUERIES)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits, model(QUERIES), atol=0.1, rtol=0.05)
    assert from_bridge(bridge, 5, 3).W_U.dtype == torch.bfloat16


# ---- refusals ----


def test_no_attention_has_no_counterpart(build: Build) -> None:
    with pytest.raises(ConfigError, match="attention='none' has no counterpart"):
        to_bridge(build(attention="none"))


PROCESSINGS: dict[str, Callable[[TransformerBridge], None]] = {
    "compatibility": lambda bridge: bridge.enable_compatibility_mode(disable_warnings=True),
    "no processing": lambda bridge: bridge.enable_compatibility_mode(disable_warnings=True, no_processing=True),
    "processed alone": lambda bridge: bridge.process_weights(),
}


@pytest.mark.parametrize("processing", list(PROCESSINGS))
@pytest.mark.parametrize("normalization_type", [None, "LN"])
def test_processed_weights_are_refused(processing: str, normalization_type: str | None) -> None:  # cases.md 8
    bridge = native(normalization_type=normalization_type)
    raw = bridge.W_U.clone()
    from_bridge(bridge, 5, 3)
    PROCESSINGS[processing](bridge)
    # what makes the refusal matter: the unembedding really is another matrix now
    assert torch.allclose(bridge.W_U, raw) == (processing == "no processing")
    with pytest.raises(ConfigError, match=r"went through enable_compatibility_mode\(\) or process_weights\(\)"):
        from_bridge(bridge, 5, 3)


def other_logits(bridge: TransformerBridge, changed: TransformerBridge) -> bool:
    """Whether the setting really changes what a native bridge of the same weights computes."""
    changed.load_state_dict(bridge.state_dict(), strict=True)
    return not torch.allclose(bridge(QUERIES), changed(QUERIES))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"eps": 0.1, "normalization_type": "LN"}, "eps=0.1"),
        ({"attn_scale": 7.0}, "attn_scale=7.0"),
        ({"attn_scores_soft_cap": 0.5}, "attn_scores_soft_cap=0.5"),
        ({"output_logits_soft_cap": 0.5}, "output_logits_soft_cap=0.5"),
        ({"attention_dir": "bidirectional"}, "attention_dir='bidirectional'"),
    ],
)
def test_settings_that_change_the_logits_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    same = {"normalization_type": change.get("normalization_type")}
    assert other_logits(native(**same), native(**change))
    with pytest.raises(ConfigError) as caught:
        from_bridge(native(**change), 5, 3)
    assert f"has no counterpart for {named} of this bridge" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"normalization_type": "LNPre"}, "normalization_type='LNPre'"),
        ({"normalization_type": "RMSPre"}, "normalization_type='RMSPre'"),
        ({"normalization_type": "LN", "final_rms": True}, "final_rms=True"),
        ({"gated_mlp": True, "act_fn": "silu"}, "gated_mlp=True"),
        ({"attn_only": True}, "attn_only=True"),
        ({"positional_embedding_type": "rotary", "rotary_dim": 4}, "positional_embedding_type='rotary'"),
        ({"n_key_value_heads": 1}, "n_key_value_heads=1"),
        ({"d_head": 8}, "d_head=8"),
    ],
)
def test_parts_that_we_lack_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_bridge(native(**change), 5, 3)
    assert f"5 subjects and 3 relations has no counterpart for {named} of this bridge" in str(caught.value)


def test_an_unknown_activation_is_refused() -> None:
    jaxtyping.config.update("jaxtyping_disable", True)  # as outside the tests, where no type is checked before ours
    try:
        with pytest.raises(ConfigError, match="act_fn='solu_ln' is not one of"):
            from_bridge(native(act_fn="solu_ln"), 5, 3)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_a_bias_that_our_unembedding_lacks_is_refused() -> None:
    bridge = native()
    before = bridge(QUERIES)
    with torch.no_grad():
        bridge.state_dict()["unembed.bias"][3] = 0.5
    assert float((bridge(QUERIES) - before)[0, 0, 3].detach()) == pytest.approx(0.5, abs=1e-5)
    with pytest.raises(ConfigError, match=r"has no counterpart for unembed\.bias of this bridge; set it to zero first"):
        from_bridge(bridge, 5, 3)


@pytest.mark.parametrize(("n_subjects", "n_relations"), [(5, 2), (6, 3), (8, 8)])
def test_tokens_must_add_up_to_the_vocabulary(n_subjects: int, n_relations: int) -> None:
    with pytest.raises(ConfigError, match=f"{n_subjects} subjects and {n_relations} relations has no .* for d_vocab=8"):
        from_bridge(native(), n_subjects, n_relations)
    assert isinstance(from_bridge(native(), 7, 1)(torch.tensor([[6, 7]])), Tensor)
