"""What is to be remembered: tables of facts, random worlds, files, query tokens."""

from geointerp.facts.files import read_facts, shipped_table, write_facts
from geointerp.facts.queries import queries
from geointerp.facts.table import FactTable
from geointerp.facts.worlds import random_bijections

__all__ = ["FactTable", "queries", "random_bijections", "read_facts", "shipped_table", "write_facts"]
