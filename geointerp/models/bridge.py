"""To and from TransformerLens's native TransformerBridge, where the two architectures overlap."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformer_lens.model_bridge import TransformerBridge

from geointerp.errors import ConfigError
from geointerp.models.config import FactTransformerConfig
from geointerp.models.layers import Norm
from geointerp.models.transformer import FactTransformer


@dataclass(frozen=True)
class _Shared:
    """A weight that both architectures have: its name in the bridge, and our layout to and from theirs."""

    name: str
    weight: Tensor
    to_theirs: Callable[[Tensor], Tensor]
    to_ours: Callable[[Tensor], Tensor]


def _shared_weights(model: FactTransformer) -> Iterator[_Shared]:
    """Every weight of ours but the embedding tables, which the bridge keeps as one."""
    heads = (model.config.n_heads, model.config.d_head)

    def same(name: str, weight: Tensor | None) -> Iterator[_Shared]:
        if weight is not None:
            yield _Shared(name, weight, lambda w: w, lambda w: w)

    def turned(name: str, weight: Tensor) -> Iterator[_Shared]:
        yield _Shared(name, weight, lambda w: w.T, lambda w: w.T)

    def by_head(name: str, weight: Tensor | None, bias: Tensor | None) -> Iterator[_Shared]:
        if weight is not None:
            yield _Shared(
                f"{name}.weight",
                weight,
                lambda w: w.transpose(0, 1).flatten(1).T,
                lambda w: w.T.unflatten(1, heads).transpose(0, 1),
            )
        if bias is not None:
            yield _Shared(f"{name}.bias", bias, lambda b: b.flatten(), lambda b: b.unflatten(0, heads))

    def norm(name: str, module: nn.Module) -> Iterator[_Shared]:
        if isinstance(module, Norm):
            yield from same(f"{name}.weight", module.w)
            yield from same(f"{name}.bias", module.b)

    yield from same("pos_embed.weight", model.W_pos)
    yield from norm("ln_final", model.ln_final)
    if model.unembed is not None:
        yield from turned("unembed.weight", model.unembed.W_U)
    for layer, block in enumerate(model.blocks):
        at = f"blocks.{layer}"
        attn, mlp = block.attn, block.mlp
        if attn is not None:
            yield from norm(f"{at}.ln1", block.ln1)
            yield from by_head(f"{at}.attn.q", attn.W_Q if attn.learned else None, attn.b_Q)
            yield from by_head(f"{at}.attn.k", attn.W_K if attn.learned else None, attn.b_K)
            yield from by_head(f"{at}.attn.v", attn.W_V, attn.b_V)
            yield _Shared(
                f"{at}.attn.o.weight", attn.W_O, lambda w: w.flatten(0, 1).T, lambda w: w.T.unflatten(0, heads)
            )
            yield from same(f"{at}.attn.o.bias", attn.b_O)
        yield from norm(f"{at}.ln2", block.ln2)
        yield from turned(f"{at}.mlp.in.weight", mlp.W_in)
        yield from same(f"{at}.mlp.in.bias", mlp.b_in)
        yield from turned(f"{at}.mlp.out.weight", mlp.W_out)
        yield from same(f"{at}.mlp.out.bias", mlp.b_out)


def to_bridge(model: FactTransformer) -> TransformerBridge:
    """A native TransformerBridge with equal logits (tested to 1e-5), for every tool of TransformerLens.

    What the bridge cannot switch off is set to what leaves the logits alone: absent biases and positions to zero, and
    uniform attention as queries and keys of zero. A tied unembedding is copied, since the bridge knows no tie.

    Raises:
        ConfigError: the model has no attention, which a native bridge always has.
    """
    if model.config.attention == "none":
        raise ConfigError(
            "attention='none' has no counterpart in a native TransformerBridge, whose blocks always attend; "
            "train with attention='uniform' or 'learned' to convert"
        )
    cfg = model.cfg
    # device and dtype are given again because boot_native ignores those of cfg
    bridge: TransformerBridge = TransformerBridge.boot_native(cfg, device=cfg.device, dtype=cfg.dtype)  # pyright: ignore[reportAttributeAccessIssue] - attached at import
    weights = {name: torch.zeros_like(value) for name, value in bridge.state_dict().items()}
    weights |= {"embed.weight": model.W_E, "unembed.weight": model.W_U.T}
    weights |= {shared.name: shared.to_theirs(shared.weight) for shared in _shared_weights(model)}
    bridge.load_state_dict({name: value.detach().clone() for name, value in weights.items()}, strict=True)
    return bridge.eval()


def from_bridge(bridge: TransformerBridge, n_subjects: int, n_relations: int) -> FactTransformer:
    """A FactTransformer with the weights of a native bridge, equal logits.

    Args:
        bridge: made by ``TransformerBridge.boot_native``, its weights unprocessed.
        n_subjects, n_relations: how its input tokens divide; they must add up to its vocabulary.

    Raises:
        ConfigError: the bridge was processed by ``enable_compatibility_mode``, is not native, or has a part that a
            FactTransformer lacks; the message names it.
    """
    cfg = bridge.cfg
    if bridge.compatibility_mode or bridge._weights_processed:  # the latter alone after a bare process_weights()
        raise ConfigError(
            "this bridge went through enable_compatibility_mode() or process_weights(), which change W_E and W_U; "
            "convert before calling it, or boot the bridge again"
        )
    if cfg.architecture != "TransformerLensNative":
        raise ConfigError(f"a {cfg.architecture!r} bridge cannot become a FactTransformer; only native bridges can")
    unknown = [
        f"{name}={value!r}"
        for name, value, known in (
            ("normalization_type", cfg.normalization_type, (None, "LN", "RMS")),
            ("gated_mlp", cfg.gated_mlp, (False,)),
            ("attn_only", cfg.attn_only, (False,)),
            ("positional_embedding_type", cfg.positional_embedding_type, ("standard",)),
            ("attention_dir", cfg.attention_dir, ("causal",)),
            ("n_key_value_heads", cfg.n_key_value_heads, (None, cfg.n_heads)),
            ("d_head", cfg.d_head, (cfg.d_model / cfg.n_heads,)),
            ("attn_scale", cfg.attn_scale if cfg.use_attn_scale else -1.0, (-1.0, cfg.d_head**0.5)),
            ("attn_scores_soft_cap", max(cfg.attn_scores_soft_cap, 0.0), (0.0,)),
            ("output_logits_soft_cap", max(cfg.output_logits_soft_cap, 0.0), (0.0,)),
            ("final_rms", cfg.final_rms, (cfg.normalization_type == "RMS", False)),
            ("eps", Norm.eps if cfg.normalization_type is None else cfg.eps, (Norm.eps,)),
            ("d_vocab", cfg.d_vocab, (n_subjects + n_relations,)),
        )
        if value not in known
    ]
    if unknown:
        raise ConfigError(
            f"a FactTransformer of {n_subjects} subjects and {n_relations} relations has no counterpart for "
            f"{', '.join(unknown)} of this bridge; rebuild the bridge without it"
        )
    config = FactTransformerConfig(
        n_subjects=n_subjects,
        n_relations=n_relations,
        n_attributes=cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab,
        d_model=cfg.d_model,
        n_layers=cfg.n_layers,
        n_heads=cfg.n_heads,
        d_mlp=cfg.d_mlp or 4 * cfg.d_model,
        n_ctx=cfg.n_ctx,
        attention="learned",
        positions=True,
        normalization=cfg.normalization_type,  # pyright: ignore[reportArgumentType] - checked above
        act_fn=cfg.act_fn,  # pyright: ignore[reportArgumentType] - checked by the config
        biases=True,
    )
    weights = bridge.state_dict()
    model = FactTransformer(config).to(weights["embed.weight"])
    with torch.no_grad():
        table = weights.pop("embed.weight")
        model.embed.W_subject.copy_(table[:n_subjects])
        model.embed.W_relation.copy_(table[n_subjects:])
        for shared in _shared_weights(model):
            shared.weight.copy_(shared.to_ours(weights.pop(shared.name)))
    left = sorted(name for name, value in weights.items() if value.any())  # e.g. the bias that our unembedding lacks
    if left:
        raise ConfigError(
            f"a FactTransformer has no counterpart for {', '.join(left)} of this bridge; set it to zero first"
        )
    return model.eval()
