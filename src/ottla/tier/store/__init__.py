"""Segments as objects: names, layout, ranges, and the pace of copies."""
