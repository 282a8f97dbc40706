"""Hooked transformers over facts, their configuration, recall, and the way to and from TransformerBridge."""
