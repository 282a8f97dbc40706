"""The layers of a FactTransformer, with TransformerLens's weight names, shapes and hook names."""

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from geointerp.models.config import FactTransformerConfig
from geointerp.models.hooks import CheckedHookPoint

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


class Embed(nn.Module):
    """One table a kind of token, so that each can be frozen, replaced or measured by itself."""

    def __init__(self, config: FactTransformerConfig) -> None:
        super().__init__()
        self.W_subject = weight(config.n_subjects, config.d_model)
        self.W_relation = weight(config.n_relations, config.d_model)
        self.W_attribute = weight(config.n_attributes, config.d_model) if config.tie_unembed else None

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        tables = (self.W_subject, self.W_relation, self.W_attribute)
        return torch.cat([table for table in tables if table is not None])


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last axis, with the hook_scale and hook_normalized (before w and b) of
    TransformerLens's bridge."""

    eps = 1e-5

    def __init__(self, config: FactTransformerConfig) -> None:
        super().__init__()
        self.centred = config.normalization == "LN"
        self.w = weight(config.d_model)
        self.b = weight(config.d_model) if self.centred else None
        self.hook_scale = CheckedHookPoint()
        self.hook_normalized = CheckedHookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = self.hook_normalized(x / scale) * self.w
        return x if self.b is None else x + self.b


def norm_or_identity(config: FactTransformerConfig) -> nn.Module:
    return nn.Identity() if config.normalization is None else Norm(config)


class Attention(nn.Module):
    """Causal attention: 'learned' (softmax) or 'uniform' (every earlier position weighs the same)."""

    def __init__(self, config: FactTransformerConfig) -> None:
        super().__init__()
        heads, d_model, d_head = config.n_heads, config.d_model, config.d_head
        self.learned = config.attention == "learned"
        if self.learned:
            self.W_Q, self.W_K = weight(heads, d_model, d_head), weight(heads, d_model, d_head)
            self.hook_q, self.hook_k, self.hook_attn_scores = (CheckedHookPoint() for _ in range(3))
        self.W_V, self.W_O = weight(heads, d_model, d_head), weight(heads, d_head, d_model)
        self.b_Q = self.b_K = self.b_V = self.b_O = None
        if config.biases:
            if self.learned:
                self.b_Q, self.b_K = weight(heads, d_head), weight(heads, d_head)
            self.b_V, self.b_O = weight(heads, d_head), weight(d_model)
        self.hook_v, self.hook_pattern, self.hook_z = (CheckedHookPoint() for _ in range(3))

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], *, last_only: bool
    ) -> Float[Tensor, "batch query_pos d_model"]:
        """Attention output at every position, or with ``last_only`` at the last one alone."""
        if self.learned or self.hook_v.has_hooks() or self.hook_pattern.has_hooks():
            v = self.hook_v(self._heads(x, self.W_V, self.b_V))
            pattern = self._softmax_pattern(x, last_only) if self.learned else self._uniform_pattern(x, last_only)
            z = einsum(self.hook_pattern(pattern), v, "b h q k, b k h d -> b q h d")
        else:  # nobody looks at values or pattern, and the average of values is the value of the average
            average = x.mean(1, keepdim=True) if last_only else x.cumsum(1) / self._counts(x)[:, None]
            z = self._heads(average, self.W_V, self.b_V)
        z = self.hook_z(z)
        out = z.flatten(-2) @ self.W_O.flatten(0, 1)
        return out if self.b_O is None else out + self.b_O

    @staticmethod
    def _heads(
        x: Float[Tensor, "batch pos d_model"],
        w: Float[Tensor, "head d_model d_head"],
        b: Float[Tensor, "head d_head"] | None,
    ) -> Float[Tensor, "batch pos head d_head"]:
        heads = (x @ w.transpose(0, 1).flatten(1)).unflatten(-1, (w.shape[0], w.shape[2]))
        return heads if b is None else heads + b

    @staticmethod
    def _counts(x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, " pos"]:
        return torch.arange(1, x.shape[1] + 1, device=x.device).to(x.dtype)

    def _softmax_pattern(
        self, x: Float[Tensor, "batch pos d_model"], last_only: bool
    ) -> Float[Tensor, "batch head query_pos pos"]:
        q = self.hook_q(self._heads(x[:, -1:] if last_only else x, self.W_Q, self.b_Q))
        k = self.hook_k(self._heads(x, self.W_K, self.b_K))
        scores = einsum(q, k, "b q h d, b k h d -> b h q k") / q.shape[-1] ** 0.5
        n = x.shape[1]
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)[-scores.shape[2] :]
        return self.hook_attn_scores(scores.masked_fill(future, float("-inf"))).softmax(-1)

    def _uniform_pattern(
        self, x: Float[Tensor, "batch pos d_model"], last_only: bool
    ) -> Float[Tensor, "batch head query_pos pos"]:
        n = x.shape[1]
        pattern = torch.ones(n, n, dtype=x.dtype, device=x.device).tril() / self._counts(x)[:, None]
        pattern = pattern[-1:] if last_only else pattern
        return pattern.expand(x.shape[0], self.W_V.shape[0], -1, -1).clone()


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out; a unit's pre-activation is read at hook_pre."""

    def __init__(self, config: FactTransformerConfig) -> None:
        super().__init__()
        self.act = ACTIVATIONS[config.act_fn]
        self.W_in, self.W_out = weight(config.d_model, config.d_mlp), weight(config.d_mlp, config.d_model)
        self.b_in = weight(config.d_mlp) if config.biases else None
        self.b_out = weight(config.d_model) if config.biases else None
        self.hook_pre, self.hook_post = CheckedHookPoint(), CheckedHookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        pre = x @ self.W_in
        post = self.hook_post(self.act(self.hook_pre(pre if self.b_in is None else pre + self.b_in)))
        out = post @ self.W_out
        return out if self.b_out is None else out + self.b_out


class Block(nn.Module):
    """Pre-norm block: x + attention, then + MLP.

    Without attention, the first block adds the embeddings of all earlier positions in its place, and the others add
    nothing, so that residuals decompose as they do with attention.
    """

    def __init__(self, config: FactTransformerConfig, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.attn: Attention | None = None if config.attention == "none" else Attention(config)
        if self.attn is not None:
            self.ln1 = norm_or_identity(config)
        self.ln2 = norm_or_identity(config)
        self.mlp = MLP(config)
        self.hook_resid_pre, self.hook_resid_mid, self.hook_resid_post = (CheckedHookPoint() for _ in range(3))
        self.hook_attn_out, self.hook_mlp_out = CheckedHookPoint(), CheckedHookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], *, last_only: bool
    ) -> Float[Tensor, "batch query_pos d_model"]:
        x = self.hook_resid_pre(x)
        if self.attn is not None:
            attn_out = self.attn(self.ln1(x), last_only=last_only)
        elif not self.first:
            attn_out = torch.zeros_like(x[:, -1:] if last_only else x)
        elif last_only:
            attn_out = x[:, :-1].sum(1, keepdim=True)
        else:
            attn_out = F.pad(x[:, :-1].cumsum(1), (0, 0, 1, 0))
        x = (x[:, -1:] if last_only else x) + self.hook_attn_out(attn_out)
        x = self.hook_resid_mid(x)
        return self.hook_resid_post(x + self.hook_mlp_out(self.mlp(self.ln2(x))))


class Unembed(nn.Module):
    """The unembedding W_U; its column a is attribute vector u_a."""

    def __init__(self, config: FactTransformerConfig) -> None:
        super().__init__()
        self.W_U = weight(config.d_model, config.n_attributes)
