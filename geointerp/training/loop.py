"""The training loop: AdamW on answer-position cross-entropy, resumable bit for bit."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from geointerp.errors import TrainingError
from geointerp.facts.table import FactTable
from geointerp.models.recall import Recall, recall
from geointerp.models.transformer import FactTransformer
from geointerp.plain import plain
from geointerp.randomness import generator
from geointerp.training.config import TrainConfig
from geointerp.training.loss import readout_loss


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One line of metrics: the model on all facts, without noise, after ``step`` steps."""

    step: int
    learning_rate: float
    batch_loss: float  # nats, with noise, of the last batch; NaN before the first
    loss: float  # nats, all facts, no noise
    recall: float
    recall_by_relation: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return plain(self)


class Trainer:
    """A model, its facts and an optimizer, advanced one step at a time.

    The draw of batches and noise at a step depends on ``(config.seed, step)`` alone, so a Trainer restored from
    ``state()`` goes on exactly as the one that was never stopped.

    Attributes:
        step: steps done so far.
        finished: why training is over, or None while it is not.
    """

    def __init__(self, model: FactTransformer, facts: FactTable, config: TrainConfig) -> None:
        model.check_fits(facts)
        self.model, self.facts, self.config = model, facts, config
        self.step = 0
        self.finished: str | None = None
        self.batch_loss = math.nan
        self.device = model.subject_rows.device
        relation, subject = (ids.to(self.device) for ids in facts.fact_ids)
        self._relation, self._subject = relation, subject
        self._answer = facts.answers.to(self.device)[relation, subject]
        full = config.batch_size == 0 or config.batch_size >= facts.n_facts
        self._n_batches = None if full else facts.n_facts // config.batch_size  # an epoch
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        decayed = {
            name: p.ndim >= 2 and not name.rsplit(".", 1)[-1].startswith("b") for name, p in self.parameters.items()
        }
        self.optimizer = torch.optim.AdamW(
            [
                {
                    "params": [p for name, p in self.parameters.items() if decayed[name] is group],
                    "weight_decay": config.weight_decay if group else 0.0,
                }
                for group in (True, False)
            ],
            lr=config.learning_rate,
            betas=(0.9, config.beta2),
            fused=True,
        )

    def learning_rate(self, step: int) -> float:
        """A cosine from the peak at step 0 to 0 at ``steps``, times a linear warm-up."""
        config = self.config
        warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
        return config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / config.steps))

    def advance(self) -> float:
        """One optimizer step on the next batch; returns the batch's loss in nats.

        Raises:
            TrainingError: the loss is not finite; the model keeps the weights from before the step.
        """
        rate = self.learning_rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        relation, subject, answer = self._batch()
        rows = F.embedding(subject, self.model.embed.W_subject)
        if self.config.row_noise:
            noise = torch.randn(rows.shape, generator=generator(self.config.seed, "row noise", self.step))
            rows = rows + self.config.row_noise * self.model.subject_rows.std() * noise.to(rows)
        loss = readout_loss(self.model.answer_residual(rows, relation), self.model.W_U, answer)
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value} at step {self.step} with learning rate {rate:.3g}, so training stopped before "
                f"that step; lower --learning-rate (now {self.config.learning_rate:g}) or raise --warmup-steps"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.batch_loss = value
        return value

    def evaluate(self) -> Evaluation:
        """Recall and loss on all facts, without noise."""
        result: Recall = recall(self.model.answer_logits, self.model.subject_rows, self.facts)
        return Evaluation(
            step=self.step,
            learning_rate=self.learning_rate(self.step),
            batch_loss=self.batch_loss,
            loss=result.loss,
            recall=result.overall,
            recall_by_relation=result.by_relation,
        )

    def run(
        self,
        on_evaluation: Callable[[Evaluation], None] | None = None,
        on_step: Callable[[int], bool | None] | None = None,
    ) -> Evaluation:
        """Train until finished, evaluating every ``eval_every`` steps and at the end.

        Args:
            on_evaluation: called with each evaluation, after ``finished`` is set.
            on_step: called after each step with its number; returning True stops early, leaving ``finished`` None.

        Returns:
            The last evaluation.
        """
        self.model.train()
        last = None
        if self.step and self._evaluates():  # restored at a step that may have been the last
            last = self._conclude()
        while self.finished is None:
            self.advance()
            if self._evaluates():
                last = self._conclude()
                if on_evaluation is not None:
                    on_evaluation(last)
            if on_step is not None and on_step(self.step):
                break
        self.model.eval()
        return last if last is not None and last.step == self.step else self.evaluate()

    def _conclude(self) -> Evaluation:
        """Evaluate, and set ``finished`` when training is over. Only at steps that evaluate anyhow: were it done where
        training happens to be interrupted, the resumed run could end earlier than the unbroken one."""
        result = self.evaluate()
        if result.recall == 1.0 and result.loss <= self.config.target_loss:
            self.finished = (
                f"recall 1 and loss {result.loss:.3g} <= {self.config.target_loss:g} after {self.step} steps"
            )
        elif self.step >= self.config.steps:
            reached = "recall 1" if result.recall == 1.0 else f"recall 1 was NOT reached (recall {result.recall:.4f})"
            self.finished = f"{reached} after all {self.step} steps"
        return result

    def _evaluates(self) -> bool:
        return self.step % self.config.eval_every == 0 or self.step >= self.config.steps

    def state(self) -> dict[str, Tensor]:
        """Weights and optimizer moments by name: all that a later Trainer needs, besides ``step``."""
        tensors = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        for name, p in self.parameters.items():
            tensors |= {f"optimizer.{key}.{name}": value for key, value in self.optimizer.state[p].items()}
        return tensors

    def restore(self, state: dict[str, Tensor], step: int) -> None:
        """Continue from ``state()`` as it was after ``step`` steps.

        Raises:
            TrainingError: a tensor of this model and optimizer is missing or misshapen, or there is one too many.
        """
        keys = ("step", "exp_avg", "exp_avg_sq") if step else ()  # AdamW has no moments before its first step
        needed = {f"model.{name}": p.shape for name, p in self.model.named_parameters()} | {
            f"optimizer.{key}.{name}": torch.Size() if key == "step" else p.shape
            for key in keys
            for name, p in self.parameters.items()
        }
        unfit = sorted(n for n in needed.keys() | state.keys() if n not in state or needed.get(n) != state[n].shape)
        if unfit:
            raise TrainingError(
                f"the training state does not fit the model: {', '.join(unfit[:3])} missing, unexpected or misshapen; "
                "start anew"
            )
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                p.copy_(state[f"model.{name}"])
        for name, p in self.parameters.items():
            self.optimizer.state[p] = {key: state[f"optimizer.{key}.{name}"].clone() for key in keys}
        self.step = step

    def _batch(self) -> tuple[Int[Tensor, " fact"], Int[Tensor, " fact"], Int[Tensor, " fact"]]:
        """(relation, subject, answer) of this step's facts: a new shuffle every epoch, the rest of it dropped."""
        if self._n_batches is None:
            return self._relation, self._subject, self._answer
        epoch, batch = divmod(self.step, self._n_batches)
        if epoch != self._epoch:
            self._order = torch.randperm(self.facts.n_facts, generator=generator(self.config.seed, "batches", epoch))
            self._epoch = epoch
        chosen = self._order[batch * self.config.batch_size : (batch + 1) * self.config.batch_size].to(self.device)
        return self._relation[chosen], self._subject[chosen], self._answer[chosen]
