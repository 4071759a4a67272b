"""A simulated world, in which the product's own code meets faults that a seed draws.

- ``processes``: deterministic processes with virtual time, each with event loops of its own; pause, kill, guards.
- ``kafka_logs``: what the brokers of one cluster store, and when records become visible; knows no protocol.
- ``kafka_groups``: the coordinators of consumer groups and of transactions.
- ``kafka_brokers``: brokers that speak Kafka's protocol over the network of the world.
- ``network``: connections between processes and brokers.
- ``port``: a log behind the product's own interface, with fewer faults and ten times faster.
- ``occupancy``: policy, people, the product's programs as processes, and what must come out.
- ``readers``: who reads what is released; ``recovery``: who does what ``tacet recover`` names.
- ``schedules``: faults drawn from a seed; ``run``, ``wire_run``, ``port_run``, ``runs``: runs of both levels.
- ``checker``: what must be true of the final log; knows nothing of the product.
- ``put_back``: a known fault in the product's code, to see within how many runs it is found.

``docs/simulation.md`` explains the levels, and how to run a seed and read its time line.
"""
