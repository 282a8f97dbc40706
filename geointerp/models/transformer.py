"""FactTransformer: a small hooked transformer that answers (subject, relation) with an attribute."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.utilities.typed_module_list import TypedModuleList

from geointerp.errors import FactsError
from geointerp.facts.queries import check_ids, queries
from geointerp.facts.table import FactTable
from geointerp.models.config import FactTransformerConfig
from geointerp.models.hooks import CheckedHookPoint
from geointerp.models.layers import Block, Embed, Unembed, norm_or_identity
from geointerp.randomness import generator


class FactTransformer(HookedRootModule):
    """Decoder-only transformer over subject and relation tokens whose output vocabulary is the attributes.

    It is a TransformerLens HookedRootModule with TransformerLens's hook names (``hook_embed``,
    ``blocks.0.mlp.hook_pre``, ``blocks.0.hook_resid_post``, ...), so ``run_with_cache``, ``run_with_hooks``,
    ActivationCache and ``transformer_lens.patching`` work on it.

    Args:
        config: sizes and switches. Weights are drawn from ``config.init_seed``, one sub-seed a weight.
    """

    def __init__(self, config: FactTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embed(config)
        self.hook_embed = CheckedHookPoint()
        self.W_pos = nn.Parameter(torch.empty(config.n_ctx, config.d_model)) if config.positions else None
        if config.positions:
            self.hook_pos_embed = CheckedHookPoint()
        self.blocks = TypedModuleList([Block(config, first=layer == 0) for layer in range(config.n_layers)])
        self.ln_final = norm_or_identity(config)
        self.unembed = None if config.tie_unembed else Unembed(config)
        self.setup()
        self.initialize(config.init_seed)

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Draw every weight again, a sub-seed a weight.

        Matrices and tables are normal with sd 1/sqrt(fan-in), those that write to the residual stream divided by
        sqrt(2 n_layers); biases are 0 and norm weights 1.
        """
        for name, value in self.named_parameters():
            leaf = name.rsplit(".", 1)[-1]
            if leaf.startswith("b"):
                value.zero_()
            elif leaf == "w":
                value.fill_(1.0)
            else:
                fan_in = self.config.d_mlp if leaf == "W_out" else self.config.d_model
                writes = leaf in ("W_O", "W_out")
                sd = fan_in**-0.5 / ((2 * self.config.n_layers) ** 0.5 if writes else 1.0)
                value.copy_(torch.randn(value.shape, generator=generator(seed, "init", *name.encode())) * sd)
        self.embed.W_subject.requires_grad_(not self.config.freeze_subjects)
        attribute_table = self.embed.W_attribute if self.unembed is None else self.unembed.W_U
        assert attribute_table is not None
        attribute_table.requires_grad_(not self.config.freeze_unembed)

    # ---- what it computes ----

    def forward(
        self, tokens: Int[Tensor, "batch pos"], *, answer_only: bool = False
    ) -> Float[Tensor, "batch answer_pos attribute"]:
        """Logits over attributes at every position.

        Args:
            tokens: subjects ``0..N-1``, relations ``N..N+R-1``; see ``geointerp.facts.queries``.
            answer_only: the last layer (without attention: every layer) and the unembedding see the last position
                alone; their hooks then have a position axis of length 1, and so have the logits.

        Raises:
            FactsError: a token outside the vocabulary, or a query longer than n_ctx.
        """
        if tokens.ndim != 2:
            raise FactsError(f"tokens of shape {tuple(tokens.shape)} are not [batch pos]; add the axis that lacks")
        check_ids("token", tokens, self.config.d_vocab)
        if tokens.shape[1] > self.config.n_ctx:
            raise FactsError(f"a query of {tokens.shape[1]} tokens does not fit n_ctx={self.config.n_ctx}; shorten it")
        return self._residual(nn.functional.embedding(tokens, self.W_E), answer_only=answer_only) @ self.W_U

    def answer_logits(
        self, rows: Float[Tensor, "batch d_model"], relations: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch attribute"]:
        """Logits at the answer position, asked relation ``relations[i]`` of whatever subject has row ``rows[i]``.

        This is the model as a function of the row: training, transfer and swaps go through it. Hooks run as in
        ``forward(..., answer_only=True)``, to which it is equal when the rows are those of the subjects.

        Raises:
            FactsError: a relation id out of range.
        """
        return self.answer_residual(rows, relations) @ self.W_U

    def answer_residual(
        self, rows: Float[Tensor, "batch d_model"], relations: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch d_model"]:
        """What the unembedding reads in ``answer_logits``: the last residual, after the final norm.

        Raises:
            FactsError: a relation id out of range.
        """
        check_ids("relation", relations, self.config.n_relations)
        asked = nn.functional.embedding(relations, self.embed.W_relation)
        return self._residual(torch.stack([rows, asked], dim=1), answer_only=True)[:, 0]

    def _residual(
        self, embedded: Float[Tensor, "batch pos d_model"], *, answer_only: bool
    ) -> Float[Tensor, "batch answer_pos d_model"]:
        x = self.hook_embed(embedded)
        if self.W_pos is not None:
            # a copy, so that a hook that edits in place never writes into W_pos
            x = x + self.hook_pos_embed(self.W_pos[: x.shape[1]].expand_as(x).clone())
        for layer, block in enumerate(self.blocks):
            # without attention nothing moves between positions after the first layer, so the rest need the last alone
            alone = answer_only and (layer == len(self.blocks) - 1 or self.config.attention == "none")
            x = block(x, last_only=alone)
        return self.ln_final(x)

    # ---- its weights, by TransformerLens's names ----

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.embed.W_E

    @property
    def W_U(self) -> Float[Tensor, "d_model attribute"]:
        if self.unembed is not None:
            return self.unembed.W_U
        assert self.embed.W_attribute is not None
        return self.embed.W_attribute.T

    @property
    def subject_rows(self) -> Float[Tensor, "subject d_model"]:
        """The rows e_s, detached."""
        return self.embed.W_subject.detach()

    @property
    def attribute_vectors(self) -> Float[Tensor, "attribute d_model"]:
        """The unembedding columns u_a, detached, one a row."""
        return self.W_U.detach().T

    @property
    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())

    # ---- what TransformerLens's tools ask of a model ----

    @property
    def cfg(self) -> TransformerBridgeConfig:
        """The same sizes as a TransformerLens config: what its patching and cache tools read."""
        config = self.config
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
            device=str(self.embed.W_subject.device),
            dtype=self.embed.W_subject.dtype,
            seed=config.init_seed,
            model_name="FactTransformer",
        )

    def run_with_cache(  # pyright: ignore[reportIncompatibleMethodOverride] - adds one keyword, as TransformerLens's bridge does
        self, *args: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **kwargs: Any
    ) -> Any:
        """As TransformerLens: (logits, ActivationCache), or a plain dict with ``return_cache_object=False``."""
        out, cache = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kwargs)
        if return_cache_object:
            cache = ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)  # pyright: ignore[reportArgumentType] - structural match
        return out, cache

    def to_tokens(
        self, subjects: Int[Tensor, " batch"], relations: Int[Tensor, " batch"]
    ) -> Int[Tensor, "batch pos=2"]:
        """Query tokens of (subject, relation) pairs.

        Raises:
            FactsError: an id out of range.
        """
        config = self.config
        return queries(subjects, relations, n_subjects=config.n_subjects, n_relations=config.n_relations)

    def tokens_to_residual_directions(self, attributes: Int[Tensor, "*shape"] | int) -> Float[Tensor, "*shape d_model"]:
        """Unembedding directions of attribute ids, which are the output tokens.

        Raises:
            FactsError: an id out of range.
        """
        ids = torch.as_tensor(attributes, device=self.W_U.device)
        check_ids("attribute", ids.reshape(-1), self.config.n_attributes)
        return self.W_U.T[ids]

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum of the output biases that entered the residual stream before block ``layer``.

        Args:
            layer: 0..n_layers.
            mlp_input: count the attention bias of block ``layer`` too.
            include_mlp_biases: count b_out of the MLPs.
        """
        added = [block.attn.b_O for block in self.blocks[: layer + mlp_input] if block.attn is not None]
        if include_mlp_biases:
            added += [block.mlp.b_out for block in self.blocks[:layer]]
        return sum((bias for bias in added if bias is not None), torch.zeros_like(self.W_U[:, 0]))

    def check_fits(self, facts: FactTable) -> None:
        """Raise FactsError, naming the sizes, unless model and table agree in subjects, relations, attributes."""
        for kind in ("subjects", "relations", "attributes"):
            have, need = getattr(self.config, f"n_{kind}"), getattr(facts, f"n_{kind}")
            if have != need:
                raise FactsError(
                    f"the model has {have} {kind} (ids 0..{have - 1}) and the table {need}; "
                    f"use the table that the model was trained on, or build a model with n_{kind}={need}"
                )
