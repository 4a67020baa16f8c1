"""Tables as people have them (text, categories, dates, gaps) as rows of numbers."""

from leansvm.tables.encoder import TableEncoder

__all__ = ["TableEncoder"]
