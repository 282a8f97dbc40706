"""geointerp: mechanistic interpretability of factual recall.

Facts -> models -> training -> measures -> report. After "Geometric Factual Recall in Transformers" (Ravfogel, Yehudai,
Bruna, Bietti; arXiv 2605.12426). Names are loaded when first used.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
