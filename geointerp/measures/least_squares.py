"""Least squares of subject rows on superpositions of attribute vectors: the numerics behind ``decompose``.

Two designs of one interface: ``LinearMaps`` (a matrix A_r a relation) and ``ScalarMaps`` (a number a relation). Both
work in float64 on centred data, so the intercept c is implicit. Rank is decided by the precision of the *data*: float32
rows of an exactly deficient design carry singular values of about 1e-7 relative, which are noise, not rank.

Leave-one-subject-out residuals are exact, from the leverages. With H the hat matrix, intercept included, they are
e_i / (1 - H_ii). Where 1 - H_ii is 0 the subject is fitted whatever its row; the value there is the limit of vanishing
ridge, ``[K+ y]_i / [K+]_ii`` with K the centred Gram matrix of the design over subjects, which is what refitting the
minimum-norm solution without that subject gives. The tests refit to check both.
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

SATURATED = 1e-8  # 1 - H_ii below this is rounding: float64 leaves about 1e-13


def relative_tolerance(dtype: torch.dtype, *shape: int) -> float:
    """Singular values below this share of the largest are rounding, of the data or of the solver.

    Data rounded to ``dtype`` carry independent errors, whose singular values were measured at 0.1 to 0.5 eps of the
    largest whatever the shape; 4 eps is well above. The float64 solver's own errors follow LAPACK's usual rule.
    """
    return max(4 * torch.finfo(dtype).eps, torch.finfo(torch.float64).eps * max(shape))


def numerical_rank(values: Float[Tensor, " k"], tolerance: float) -> int:
    """How many singular values (largest first) exceed ``tolerance`` times the largest; 0 for a zero matrix."""
    largest = float(values[0]) if values.numel() else 0.0
    return int((values > tolerance * largest).sum()) if largest > 0 else 0


class LinearMaps:
    """Design of e_s = c + sum_r A_r u_{g_r(s)} with a full matrix A_r a relation; build it with ``of``.

    Args:
        q, triangle: thin QR of the centred design ``[subject relation*d_attribute]``. Everything but the leverages
            lives in the small triangle, and dropping a relation means dropping columns of it.
        n_relations: blocks of columns in the triangle.
        tolerance: relative, on singular values.
    """

    def __init__(
        self,
        q: Float[Tensor, "subject k"],
        triangle: Float[Tensor, "k features"],
        n_relations: int,
        tolerance: float,
    ) -> None:
        self.q, self.triangle, self.n_relations, self.tolerance = q, triangle, n_relations, tolerance
        self.n_subjects = q.shape[0]
        left, values, right = torch.linalg.svd(triangle, full_matrices=False)
        self.rank = numerical_rank(values, tolerance)
        self.values, self.right = values[: self.rank], right[: self.rank]
        self.basis = q @ left[:, : self.rank]  # orthonormal, spans the centred design

    @classmethod
    def of(cls, components: Float[Tensor, "relation subject d_attribute"], tolerance: float) -> "LinearMaps":
        """The design of components u_{g_r(s)}, float64, zero where the fact is absent."""
        design = rearrange(components, "r s d -> s (r d)")
        q, triangle = torch.linalg.qr(design - design.mean(0))
        return cls(q, triangle, components.shape[0], tolerance)

    @property
    def n_features(self) -> int:
        return self.triangle.shape[1]

    @property
    def condition(self) -> float:
        """Largest over smallest singular value kept."""
        return float(self.values[0] / self.values[-1]) if self.rank else float("inf")

    def fitted(self, centred: Float[Tensor, "subject d_model"]) -> Float[Tensor, "subject d_model"]:
        """Projection of centred rows on the design."""
        return self.basis @ (self.basis.T @ centred)

    def left_out(
        self, centred: Float[Tensor, "subject d_model"], fitted: Float[Tensor, "subject d_model"]
    ) -> Float[Tensor, "subject d_model"]:
        """Residual of each subject under the fit to all the others."""
        slack = 1 - 1 / self.n_subjects - self.basis.pow(2).sum(1)
        residual = centred - fitted
        free = slack > SATURATED
        if not bool(free.all()):
            whitened = self.basis / self.values
            diagonal = whitened.pow(2).sum(1)
            residual = torch.where(free[:, None], residual, whitened @ (whitened.T @ centred))
            slack = torch.where(free, slack, diagonal)
        return residual / slack[:, None]

    def maps(self, centred: Float[Tensor, "subject d_model"]) -> Float[Tensor, "relation d_model d_attribute"]:
        """Minimum-norm A_r: ``e ~ c + sum_r A_r u``."""
        stacked = self.right.T @ ((self.basis.T @ centred) / self.values[:, None])
        return rearrange(stacked, "(r d) m -> r m d", r=self.n_relations)

    def own_ranks(self) -> list[int]:
        """Rank of each relation's own block of columns."""
        return [
            numerical_rank(torch.linalg.svdvals(self._columns([r])), self.tolerance) for r in range(self.n_relations)
        ]

    def without(self, relation: int) -> "LinearMaps":
        """The design that lacks one relation."""
        kept = [r for r in range(self.n_relations) if r != relation]
        return LinearMaps(self.q, self._columns(kept), self.n_relations - 1, self.tolerance)

    def _columns(self, relations: list[int]) -> Float[Tensor, "k some_features"]:
        return self.triangle.unflatten(1, (self.n_relations, -1))[:, relations].flatten(1)


class ScalarMaps:
    """Design of e_s = c + sum_r alpha_r u_{g_r(s)}: one number a relation, all coordinates together.

    A subject is left out with all its coordinates at once, so its leverage is a d x d block, inverted through R x R.

    Args:
        components: u_{g_r(s)}, float64, zero where the fact is absent.
        tolerance: relative, on singular values.
    """

    def __init__(self, components: Float[Tensor, "relation subject d_attribute"], tolerance: float) -> None:
        self.n_relations, self.n_subjects, self.d_attribute = components.shape
        self.tolerance = tolerance
        self.centred_components = components - components.mean(1, keepdim=True)
        # Singular values of the [subject*d, relation] design: the triangle of its QR keeps full precision.
        self.triangle = torch.linalg.qr(rearrange(self.centred_components, "r s d -> (s d) r"), mode="r").R
        _, values, right = torch.linalg.svd(self.triangle, full_matrices=False)
        self.rank = numerical_rank(values, tolerance)
        self.values, self.right = values[: self.rank], right[: self.rank]
        # Orthonormal basis of the fit, [k subject d].
        self.basis = einsum(self.right / self.values[:, None], self.centred_components, "k r, r s d -> k s d")

    @property
    def n_features(self) -> int:
        return self.n_relations

    @property
    def condition(self) -> float:
        return float(self.values[0] / self.values[-1]) if self.rank else float("inf")

    def fitted(self, centred: Float[Tensor, "subject d_model"]) -> Float[Tensor, "subject d_model"]:
        return einsum(einsum(self.basis, centred, "k s d, s d -> k"), self.basis, "k, k s d -> s d")

    def left_out(
        self, centred: Float[Tensor, "subject d_model"], fitted: Float[Tensor, "subject d_model"]
    ) -> Float[Tensor, "subject d_model"]:
        """(I - H_ss)^-1 of the residual block, H_ss = I/N + B_s' B_s, by the Woodbury identity."""
        keep = 1 - 1 / self.n_subjects
        residual = centred - fitted
        inner = keep * torch.eye(self.rank, dtype=centred.dtype) - einsum(
            self.basis, self.basis, "k s d, l s d -> s k l"
        )
        read = einsum(self.basis, residual, "k s d, s d -> s k")
        correction = einsum(torch.linalg.solve(inner, read), self.basis, "s k, k s d -> s d")
        return (residual + correction) / keep

    def maps(self, centred: Float[Tensor, "subject d_model"]) -> Float[Tensor, "relation d_model d_attribute"]:
        """alpha_r times the identity, so that both designs give maps of one shape."""
        alpha = (self.right / self.values[:, None]).T @ einsum(self.basis, centred, "k s d, s d -> k")
        return alpha[:, None, None] * torch.eye(self.d_attribute, dtype=centred.dtype)

    def own_ranks(self) -> list[int]:
        """1 for each relation whose components vary, else 0."""
        return [int(bool(self.triangle[:, r].norm() > 0)) for r in range(self.n_relations)]

    def without(self, relation: int) -> "ScalarMaps":
        kept = [r for r in range(self.n_relations) if r != relation]
        return ScalarMaps(self.centred_components[kept], self.tolerance)
