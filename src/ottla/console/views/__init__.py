"""One module for each page: `page(...)` makes its frozen dataclass from data and the time."""
