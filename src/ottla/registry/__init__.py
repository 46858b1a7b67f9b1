"""The schema registry: Confluent's REST API over the topic `_schemas`.

`records` are the bytes of the topic, `state` is what they add up to, `machine` decides, `requests`
are what it is asked, `views` what is read of the state. `service` parses schemas and checks their
compatibility around the machine; `routes` speak HTTP. Loaded only where a registry is configured.
"""
