"""Ottla in Spark: the `ottla` format as source and sink, and the session it runs best in.

Spark finds the format by itself (`pyspark_ottla` is a name it looks for); nothing in here has to be
called to use it. Modules that plan (`options`, `offsets`, `planning`) know neither Spark nor a
broker; `readers` and `sink` are the classes Spark talks to, and do nothing of their own.
"""
