from .errors import GeointerpError
from .facts.files import read_facts, write_facts
from .facts.table import FactTable
from .facts.worlds import random_bijections
from .measures.analysis import Analysis, measure, read_analysis, write_analysis
from .measures.gating import Gating, gating
from .measures.memory import FactMemory, as_memory
from .measures.selector import Selector, selector
from .measures.superposition import Superposition, decompose
from .measures.transfer import Transfer, transfer
from .models.bridge import from_bridge, to_bridge
from .models.config import FactTransformerConfig
from .models.recall import Recall, recall
from .models.transformer import FactTransformer
from .training.checkpoint import Run, load_run
from .training.config import RunConfig, TrainConfig
from .training.loop import Trainer
from .training.presets import PRESETS, plan
from .training.run import resume_run, train_run

__all__ = [
    "PRESETS",
    "Analysis",
    "FactMemory",
    "FactTable",
    "FactTransformer",
    "FactTransformerConfig",
    "Gating",
    "GeointerpError",
    "Recall",
    "Run",
    "RunConfig",
    "Selector",
    "Superposition",
    "TrainConfig",
    "Trainer",
    "Transfer",
    "as_memory",
    "decompose",
    "from_bridge",
    "gating",
    "load_run",
    "measure",
    "plan",
    "random_bijections",
    "read_analysis",
    "read_facts",
    "recall",
    "resume_run",
    "selector",
    "to_bridge",
    "train_run",
    "transfer",
    "write_analysis",
    "write_facts",
]
