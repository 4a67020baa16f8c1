"""Tables as people have them (text, categories, dates, missing values) as rows of numbers."""

from leansvm.tables._frames import is_table
from leansvm.tables.encoder import TableEncoder, feature_names

__all__ = ["TableEncoder", "feature_names", "is_table"]
