"""Every panel of a report, in the order of its argument. The subjects have modules of their own: ``figures_*``."""

from geointerp.measures.analysis import Analysis
from geointerp.measures.memory import as_memory
from geointerp.models.recall import recall
from geointerp.report.figures_gating import gating_panels
from geointerp.report.figures_selector import selector_panel
from geointerp.report.figures_superposition import reconstruction_panel, shares_panel, superposition_panel
from geointerp.report.figures_training import recall_panel, training_panel
from geointerp.report.figures_transfer import transfer_panel
from geointerp.report.panel import Panel
from geointerp.training.checkpoint import Run


def all_panels(run: Run, analysis: Analysis) -> tuple[Panel, ...]:
    """The panels of one measured run: training, recall, superposition, shares, gating, selector, transfer.

    Asks the network for recall by relation; everything else is read off the results.
    """
    facts = run.facts
    memory = as_memory(run.model, facts)
    panels: list[Panel | None] = [
        training_panel(run.metrics, facts, finished=run.finished) if run.metrics else None,
        recall_panel(recall(memory.logits_for("report"), memory.rows, facts), facts),
        superposition_panel(analysis.superposition, analysis.superposition_scalar),
        reconstruction_panel(analysis.superposition, analysis.superposition_scalar, 1 / facts.n_attributes),
        shares_panel(analysis.superposition, facts) if facts.n_relations > 1 else None,
        *gating_panels(analysis.gating, facts),
        selector_panel(analysis.selector, facts),
        transfer_panel(analysis.transfer),
    ]
    return tuple(panel for panel in panels if panel is not None)
