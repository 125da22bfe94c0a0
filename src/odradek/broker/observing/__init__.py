"""What a broker tells of itself while it works. Nothing here counts, or changes what a broker does.

Whoever works counts himself. `observation` reads all these numbers at one moment; `monitor` makes a page of them, on a
port of its own, and answers probes.
"""
