"""Authentication, ACLs and quotas: a client's principal, its permissions, and its limits.

Before a handler runs, `admission` holds or refuses the request as a whole; the handler authorizes each resource that it
names by the `context`. `odradek.security` decides and has the SASL mechanisms, since clients and tools use them, too.
"""
