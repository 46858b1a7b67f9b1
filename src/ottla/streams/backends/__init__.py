"""The stores behind the streams room, one module each, imported when a URL asks for it."""
