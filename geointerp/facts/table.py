"""FactTable: what is to be remembered, as ids, with names beside them."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from geointerp.errors import FactsError
from geointerp.randomness import generator

ABSENT = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class FactTable:
    """Relational facts: the attribute of every (relation, subject).

    Attributes:
        answers: attribute ids, int64 ``[relation subject]``; -1 where the fact is absent.
        n_attributes: size of the attribute set, ids ``0 .. n_attributes - 1``.
        subject_names, relation_names, attribute_names: one string an id, or None for unnamed worlds.

    Raises:
        FactsError: an id is out of range, a name list has the wrong length, or no fact is present.
    """

    answers: Int[Tensor, "relation subject"]
    n_attributes: int
    subject_names: tuple[str, ...] | None = None
    relation_names: tuple[str, ...] | None = None
    attribute_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.answers, Tensor) or self.answers.ndim != 2:
            given = (
                f"shape {tuple(self.answers.shape)}"
                if isinstance(self.answers, Tensor)
                else type(self.answers).__name__
            )
            raise FactsError(f"answers must be a torch tensor [relation subject], got {given}")
        if self.answers.dtype != torch.int64:
            raise FactsError(f"answers must be int64 attribute ids, got {self.answers.dtype}; convert with .long()")
        low, high = (int(x) for x in self.answers.aminmax()) if self.answers.numel() else (ABSENT, ABSENT)
        if low < ABSENT or high >= self.n_attributes:
            wrong = ((self.answers < ABSENT) | (self.answers >= self.n_attributes)).nonzero()[0].tolist()
            raise FactsError(
                f"attribute id {int(self.answers[tuple(wrong)])} of relation {wrong[0]}, subject {wrong[1]} is outside "
                f"0..{self.n_attributes - 1} (or -1 for an absent fact); check n_attributes={self.n_attributes}"
            )
        if high == ABSENT:
            raise FactsError(f"a table of shape {tuple(self.answers.shape)} without a single fact; give at least one")
        for kind, names, count in (
            ("subject", self.subject_names, self.n_subjects),
            ("relation", self.relation_names, self.n_relations),
            ("attribute", self.attribute_names, self.n_attributes),
        ):
            if names is not None and len(names) != count:
                raise FactsError(f"{len(names)} {kind} names for {count} {kind}s; give one a {kind}, or None")

    @property
    def n_subjects(self) -> int:
        return self.answers.shape[1]

    @property
    def n_relations(self) -> int:
        return self.answers.shape[0]

    @cached_property
    def present(self) -> Bool[Tensor, "relation subject"]:
        """True where the fact exists."""
        return self.answers != ABSENT

    @cached_property
    def n_facts(self) -> int:
        return int(self.present.sum())

    @cached_property
    def fact_ids(self) -> tuple[Int[Tensor, " fact"], Int[Tensor, " fact"]]:
        """(relation, subject) of every fact present, relation by relation."""
        relation, subject = self.present.nonzero(as_tuple=True)
        return relation, subject

    @cached_property
    def relation_kinds(self) -> tuple[str, ...]:
        """A word a relation.

        'bijection': no attribute twice and every subject has one; 'one-to-one': no attribute twice, but some subjects
        have none; 'many-to-one': the rest.
        """
        kinds = []
        for row, here in zip(self.answers, self.present, strict=True):
            held = row[here]
            if held.unique().numel() < held.numel():
                kinds.append("many-to-one")
            else:
                kinds.append("bijection" if bool(here.all()) else "one-to-one")
        return tuple(kinds)

    @cached_property
    def attribute_sets(self) -> str:
        """'shared' (all relations use the same attributes), 'disjoint' (no two share one) or 'overlapping'."""
        used = torch.zeros(self.n_relations, self.n_attributes, dtype=torch.bool)
        relation, subject = self.fact_ids
        used[relation, self.answers[relation, subject]] = True
        used = used[used.any(1)]  # a relation without facts uses nothing, and says nothing
        if bool((used == used[0]).all()):
            return "shared"
        return "disjoint" if bool((used.sum(0) <= 1).all()) else "overlapping"

    @cached_property
    def digest(self) -> str:
        """Hash of the ids (not the names): equal for equal facts."""
        head = f"{tuple(self.answers.shape)}:{self.n_attributes}:".encode()
        return hashlib.blake2b(head + self.answers.contiguous().numpy().tobytes(), digest_size=16).hexdigest()

    def subject_name(self, subject: int) -> str:
        return self.subject_names[subject] if self.subject_names else f"s{subject}"

    def relation_name(self, relation: int) -> str:
        return self.relation_names[relation] if self.relation_names else f"r{relation}"

    def attribute_name(self, attribute: int) -> str:
        return self.attribute_names[attribute] if self.attribute_names else f"a{attribute}"

    def redrawn(self, seed: int, *counters: int) -> "FactTable":
        """New facts of the same kind: in every relation the answers are permuted among the subjects that have one.

        A bijection becomes another random bijection; a many-to-one relation keeps how often each attribute occurs;
        absent facts stay absent. Names are kept. This is the unseen world on which transfer is tested.
        """
        answers = self.answers.clone()
        rng = generator(seed, "redrawn facts", *counters)
        for relation in range(self.n_relations):
            here = self.present[relation]
            held = answers[relation, here]
            answers[relation, here] = held[torch.randperm(held.numel(), generator=rng)]
        return FactTable(
            answers=answers,
            n_attributes=self.n_attributes,
            subject_names=self.subject_names,
            relation_names=self.relation_names,
            attribute_names=self.attribute_names,
        )

    def describe(self) -> str:
        """What the table holds, in one paragraph for people."""
        possible = self.n_subjects * self.n_relations
        absent = possible - self.n_facts
        kinds = ", ".join(
            f"{' '.join(self.relation_name(r).split())[:40]}: {kind}"
            + ("" if bool(self.present[r].all()) else f" ({int((~self.present[r]).sum())} absent)")
            for r, kind in enumerate(self.relation_kinds[:12])
        )
        more = f", and {self.n_relations - 12} more" if self.n_relations > 12 else ""
        return (
            f"{self.n_facts} facts: {self.n_subjects} subjects x {self.n_relations} relations, {absent} absent; "
            f"{self.n_attributes} attributes, {self.attribute_sets} between relations; {kinds}{more}"
        )
