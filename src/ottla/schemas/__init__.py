"""Avro, JSON Schema and Protobuf: what schemas say, whether they fit together, and their columns.

`model` has the values; `parsing` reads a schema (`avro`, `json_schema`, `protobuf`);
`compatibility` compares two (`avro_compat`, `json_diff`, `proto_diff`); `parsing_child` does both
in a process that can be ended. Libraries are loaded when a schema of their format is met.
"""
