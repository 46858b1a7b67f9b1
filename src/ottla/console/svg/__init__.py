"""Pictures: pure functions from values to SVG text, in the colours of the page around them."""
