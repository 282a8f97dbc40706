"""To and from TransformerLens's native TransformerBridge, where the two architectures overlap."""

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from geointerp.errors import ConfigError
from geointerp.models.config import FactTransformerConfig
from geointerp.models.transformer import FactTransformer


def bridge_config(model: FactTransformer) -> TransformerBridgeConfig:
    """The TransformerLens config with the model's sizes, device and dtype."""
    config = model.config
    return TransformerBridgeConfig(
        d_model=config.d_model,
        d_head=config.d_head,
        n_heads=config.n_heads,
        n_layers=config.n_layers,
        n_ctx=config.n_ctx,
        d_mlp=config.d_mlp,
        d_vocab=config.d_vocab,
        d_vocab_out=config.n_attributes,
        act_fn=config.act_fn,
        normalization_type=config.normalization,
        device=str(model.embed.W_subject.device),
        dtype=model.embed.W_subject.dtype,
        seed=config.init_seed,
        model_name="FactTransformer",
    )


def to_bridge(model: FactTransformer) -> TransformerBridge:
    """A native TransformerBridge with equal logits (tested to 1e-5), for every tool of TransformerLens.

    What the bridge cannot switch off is set to what leaves the logits alone: absent biases and positions to zero, and
    uniform attention as queries and keys of zero. A tied unembedding is copied, since the bridge knows no tie.

    Raises:
        ConfigError: the model has no attention, which a native bridge always has.
    """
    config = model.config
    if config.attention == "none":
        raise ConfigError(
            "attention='none' has no counterpart in a native TransformerBridge, whose blocks always attend; "
            "train with attention='uniform' or 'learned' to convert"
        )
    bridge: TransformerBridge = TransformerBridge.boot_native(bridge_config(model))  # pyright: ignore[reportAttributeAccessIssue] - attached at import
    weights = {name: torch.zeros_like(value) for name, value in bridge.state_dict().items()}
    weights["embed.weight"] = model.W_E
    weights["unembed.weight"] = model.W_U.T
    if model.W_pos is not None:
        weights["pos_embed.weight"] = model.W_pos
    norms = {"ln_final": model.ln_final}
    for layer, block in enumerate(model.blocks):
        at = f"blocks.{layer}"
        norms |= {f"{at}.ln1": block.ln1, f"{at}.ln2": block.ln2}
        for ours, theirs in (("Q", "q"), ("K", "k"), ("V", "v")):
            value = getattr(block.attn, f"W_{ours}", None)
            if value is not None:
                weights[f"{at}.attn.{theirs}.weight"] = value.transpose(0, 1).flatten(1).T
            bias = getattr(block.attn, f"b_{ours}")
            if bias is not None:
                weights[f"{at}.attn.{theirs}.bias"] = bias.flatten()
        weights[f"{at}.attn.o.weight"] = block.attn.W_O.flatten(0, 1).T
        weights[f"{at}.mlp.in.weight"], weights[f"{at}.mlp.out.weight"] = block.mlp.W_in.T, block.mlp.W_out.T
        if config.biases:
            weights[f"{at}.attn.o.bias"] = block.attn.b_O
            weights[f"{at}.mlp.in.bias"], weights[f"{at}.mlp.out.bias"] = block.mlp.b_in, block.mlp.b_out
    if config.normalization is not None:
        for name, norm in norms.items():
            weights[f"{name}.weight"] = norm.w
            if norm.b is not None:
                weights[f"{name}.bias"] = norm.b
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
    if getattr(bridge, "compatibility_mode", False):
        raise ConfigError(
            "this bridge went through enable_compatibility_mode(), which changes W_E and W_U; "
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
            ("attn_scale", cfg.attn_scale, (-1.0, cfg.d_head**0.5)),
            ("final_rms", cfg.final_rms, (cfg.normalization_type == "RMS", False)),
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
    model = FactTransformer(config)
    head_shape = (config.n_heads, config.d_head)

    def put(parameter: torch.Tensor, value: torch.Tensor) -> None:
        parameter.data = value.detach().to(torch.float32).clone()

    put(model.embed.W_subject, weights["embed.weight"][:n_subjects])
    put(model.embed.W_relation, weights["embed.weight"][n_subjects:])
    put(model.W_pos, weights["pos_embed.weight"])  # pyright: ignore[reportArgumentType] - positions are on
    put(model.unembed.W_U, weights["unembed.weight"].T)  # pyright: ignore[reportOptionalMemberAccess] - not tied
    norms = {"ln_final": model.ln_final}
    for layer, block in enumerate(model.blocks):
        at = f"blocks.{layer}"
        norms |= {f"{at}.ln1": block.ln1, f"{at}.ln2": block.ln2}
        for ours, theirs in (("Q", "q"), ("K", "k"), ("V", "v")):
            put(getattr(block.attn, f"W_{ours}"), weights[f"{at}.attn.{theirs}.weight"].T.unflatten(1, head_shape).transpose(0, 1))
            put(getattr(block.attn, f"b_{ours}"), weights[f"{at}.attn.{theirs}.bias"].unflatten(0, head_shape))
        put(block.attn.W_O, weights[f"{at}.attn.o.weight"].T.unflatten(0, head_shape))
        put(block.attn.b_O, weights[f"{at}.attn.o.bias"])
        put(block.mlp.W_in, weights[f"{at}.mlp.in.weight"].T)
        put(block.mlp.b_in, weights[f"{at}.mlp.in.bias"])
        put(block.mlp.W_out, weights[f"{at}.mlp.out.weight"].T)
        put(block.mlp.b_out, weights[f"{at}.mlp.out.bias"])
    if config.normalization is not None:
        for name, norm in norms.items():
            put(norm.w, weights[f"{name}.weight"])
            if norm.b is not None:
                put(norm.b, weights[f"{name}.bias"])
    return model
