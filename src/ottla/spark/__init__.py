"""Ottla in Spark: the `ottla` format as source and sink, and the session it runs best in.

Spark finds the format by itself (`pyspark_ottla` is a name it looks for); no call is needed to use
it. The planning modules (`options`, `offsets`, `planning`) import neither Spark nor a client;
`readers` and `sink` are the classes that Spark calls, and only delegate.
"""
