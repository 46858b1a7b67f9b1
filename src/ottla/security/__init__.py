"""TLS, key stores, certificates, principals and SASL mechanisms, for both sides of a connection.

Nothing here opens a socket. A broker whose listeners are all PLAINTEXT, and a client without
`security`, load no module of this room; cryptography and PyJWT are imported inside functions.
"""
